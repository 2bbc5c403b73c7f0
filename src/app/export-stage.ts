import { openAccessReader } from '../access/store.ts';
import { dataPaths } from '../config.ts';
import { startExport } from '../export/export.ts';
import { createLiveHub } from '../live/live-hub.ts';
import { holdsEvents } from '../lake/files/holds-events.ts';
import { areSameFolders } from '../runtime/files/folder-id.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { addressOf } from '../runtime/http/request-head.ts';
import type { Stage } from '../runtime/processes/role-process.ts';
import { describeApi } from './api-reference.ts';
import { openLiveChannel, openRefusalReader } from './live-parts.ts';
import { openHealth, watchStoreDisk, withProblems, type Parts } from './stage-parts.ts';

/** What a disk at its reserve means, where it is not the stream's. */
const reportsDiskLow: Problem = {
  code: 'reports_disk_low',
  what: 'the disk of the reports has come down to its reserve',
  todo: 'Free some space: once it is full, exports wait for it, for as long as TRIBUTARY_EXPORT_TIMEOUT_MS says; import and the lake go on.',
};

/** Starts export: it asks access and reads the lake, and writes report files. */
export async function startExportStage(parts: Parts): Promise<Stage> {
  const { config, logger, metrics, clock, closers } = parts;
  const reference = describeApi(config);
  const paths = dataPaths(config.dataDir);
  const access = openAccessReader(paths, logger, {
    isExpected: () => holdsEvents(paths.lake),
    isOwn: () => areSameFolders(parts.folders ?? {}),
  });
  closers.add('access', () => access.close());
  const channel = openLiveChannel(parts, 'export');
  const health = await openHealth();
  const stage = await startExport(
    {
      access,
      clock,
      metrics,
      logger,
      appView: { readRefusals: openRefusalReader(parts), hub: channel && createLiveHub(channel) },
      extraRoutes: [
        health.addRoutes,
        (server) =>
          void server.get('/openapi.json', (request) => reference(config.publicApiUrl ?? addressOf(request.raw))),
      ],
    },
    {
      ...config,
      port: config.apiPort,
      publicUrl: config.publicApiUrl,
      lakeDir: paths.lake,
      reportsDir: paths.reports,
      keysDir: paths.keys,
      segmentsDir: paths.segments,
      titlesDir: paths.titles,
      webhooksDir: paths.webhooks,
      schedulesDir: paths.schedules,
    },
  );
  const watched = withProblems(stage, [
    await watchStoreDisk(parts, paths.reports, reportsDiskLow),
    () => access.problems(),
  ]);
  return { ...watched, onService: health.onService };
}
