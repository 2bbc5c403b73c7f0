import type { IncomingMessage } from 'node:http';
import { openAccessReader } from '../access/store.ts';
import { openAuditLog } from '../audit/audit-log.ts';
import { dataPaths, pickSettings } from '../config.ts';
import { exportSettings, startExport } from '../export/export.ts';
import { createLiveHub } from '../live/live-hub.ts';
import { holdsEvents } from '../lake/files/data-file.ts';
import { areSameFolders } from '../runtime/files/folder-id.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import { addressOf, takesGzip } from '../runtime/http/request-head.ts';
import type { Stage } from '../runtime/processes/role-process.ts';
import type { PublicServer } from '../ops/routes.ts';
import { createReferenceDocuments, createReferencePages, pagePolicy, type Addressed } from '../reference/page.ts';
import { describeApi } from './api-reference.ts';
import { openConsole } from './console.ts';
import { openLiveChannel, openRefusalReader } from './client-diagnostics.ts';
import { openServiceStatus } from './service-status.ts';
import { assertTableColumns } from '../lake/lake.ts';
import { startCopiesSweep } from './storage.ts';
import {
  openHealth,
  startStandbyResponder,
  watchRecords,
  watchStoreDisk,
  withProblems,
  type CompositionContext,
} from './context.ts';

const reportsDiskLow: Problem = {
  code: 'reports_disk_low',
  message: 'free space on the disk of the reports is below the reserve',
  action:
    'Free some space. On a full disk, exports wait up to TRIBUTARY_EXPORT_TIMEOUT_MS, then fail; imports and the lake continue.',
};

/** Serves the API reference as JSON and as a page. */
function addReference(
  server: PublicServer,
  reference: (exportUrl: string) => object,
  addressFor: (request: IncomingMessage) => string,
): void {
  const add = (path: string, type: string, find: (exportUrl: string) => Addressed, headers: object = {}): void =>
    void server.get(path, (request, reply) => {
      const { plain, gzip } = find(addressFor(request.raw));
      const isGzip = takesGzip(request.headers['accept-encoding']);
      void reply.type(`${type}; charset=utf-8`).headers({ ...headers, vary: 'Accept-Encoding, Host' });
      if (isGzip) void reply.header('content-encoding', 'gzip');
      return reply.send(isGzip ? gzip() : plain);
    });
  add('/openapi.json', 'application/json', createReferenceDocuments(reference));
  add('/docs', 'text/html', createReferencePages(reference), {
    'content-security-policy': pagePolicy,
    'referrer-policy': 'no-referrer',
  });
}

/** Starts export: it reads access and the lake, and writes report files. */
export async function startExportStage(compositionContext: CompositionContext): Promise<Stage> {
  const { config, logger, metrics, clock, closers, tracing } = compositionContext;
  const reference = describeApi(config);
  const paths = dataPaths(config.dataDir);
  await assertTableColumns(paths.lake);
  startCopiesSweep(compositionContext);
  const access = await openAccessReader(paths, logger, {
    isExpected: () => holdsEvents(paths.lake),
    isOwn: () => areSameFolders(compositionContext.folders ?? {}),
  });
  closers.add('access', () => access.close());
  const channel = openLiveChannel(compositionContext, 'export');
  const refusals = openRefusalReader(compositionContext, startStandbyResponder(compositionContext));
  const health = await openHealth(compositionContext);
  const isOwn = (): boolean => areSameFolders(compositionContext.folders ?? {});
  const audit = openAuditLog({ folder: paths.audit, keepDays: config.auditDays, isOwn }, { clock, logger });
  closers.add('audit log', () => audit.stop());
  const web = await openConsole(compositionContext, access, audit);
  const stage = await startExport(
    {
      access,
      clock,
      metrics,
      logger,
      tracing,
      appView: { readRefusals: refusals.read, hub: channel && createLiveHub(channel) },
      audit,
      operations: { paths, readStatus: openServiceStatus(compositionContext) },
      sessions: web.sessions,
      extraRoutes: [
        health.addRoutes,
        web.addRoutes,
        (server) => addReference(server, reference, (request) => config.publicApiUrl ?? addressOf(request)),
      ],
    },
    {
      ...pickSettings(config, exportSettings),
      port: config.apiPort,
      publicUrl: config.publicApiUrl,
      lakeDir: paths.lake,
      reportsDir: paths.reports,
      keysDir: paths.keys,
      segmentsDir: paths.segments,
      titlesDir: paths.titles,
      webhooksDir: paths.webhooks,
      schedulesDir: paths.schedules,
      destinationsDir: paths.destinations,
    },
  );
  const watched = withProblems(stage, [
    await watchStoreDisk(compositionContext, paths.reports, reportsDiskLow),
    await watchRecords(compositionContext),
    () => [...access.problems(), ...web.problems(), ...audit.problems()],
  ]);
  return {
    ...watched,
    stop: () => health.drained().then(() => watched.stop()),
    onService(view) {
      health.onService(view);
      refusals.onService(view);
    },
  };
}
