import path from 'node:path';
import { listKeepRules } from '../access/apps.ts';
import { startCompact } from '../compact/compact.ts';
import { dataPaths } from '../config.ts';
import { startResponder } from '../event-lookup/responder.ts';
import { openEnrichment } from '../enrichment/enrichment.ts';
import type { Problem } from '../runtime/problems/problem.ts';
import type { Stage } from '../runtime/processes/role-process.ts';
import { openReader } from '../stream/reader.ts';
import { assertTableColumns } from '../lake/lake.ts';
import { refusalFolder, serveRefusals } from './client-diagnostics.ts';
import { startCopiesSweep } from './storage.ts';
import { openStream, watchStoreDisk, withProblems, type CompositionContext } from './context.ts';

const lakeDiskLow: Problem = {
  code: 'lake_disk_low',
  message: "free space on the lake's disk is below the reserve",
  action:
    'Free some space. On a full disk, events wait in the stream while it is below its limit. No acknowledged event is lost.',
};

/** Starts the compactor and the responder of event lookups. */
export async function startCompactStage(compositionContext: CompositionContext): Promise<Stage> {
  const { config, logger, metrics, clock, closers, tracing } = compositionContext;
  const paths = dataPaths(config.dataDir);
  await assertTableColumns(paths.lake);
  startCopiesSweep(compositionContext);
  const { connection, guard, findProblems } = await openStream(compositionContext, 'compact');
  const reader = await openReader(connection, { streamName: config.streamName, guard });
  closers.add('stream reader', () => reader.close());
  const enrichment = config.enriches ? await openEnrichment(config) : undefined;
  closers.add('enrichment', () => enrichment?.close());
  const compactor = await startCompact(
    { reader, clock, metrics, logger, enrichment, tracing },
    {
      lakeDir: paths.lake,
      spoolDir: path.join(paths.spool, 'compact'),
      flushAgeMs: config.flushAgeMs,
      flushMaxBytes: config.flushMaxBytes,
      flushMaxRows: config.flushMaxRows,
      sealAgeMs: config.sealAgeMs,
      sealMaxBytes: config.sealMaxBytes,
      mergeAfterMs: config.mergeAfterMs,
      mergeFileBytes: config.mergeFileBytes,
      retentionMs: config.retentionMs,
      readAgeRules: async () => ({ defaultDays: config.keepDays, apps: await listKeepRules(paths) }),
      duckdbMemoryMb: config.duckdbMemoryMb,
      ...(config.refusalsAgeMs > 0 ? { refusals: refusalFolder(config) } : {}),
    },
  );
  serveRefusals(compositionContext, connection);
  const responder = startResponder(
    { connection, streamName: config.streamName, logger },
    { lakeDir: paths.lake, indexDir: paths.eventIndex, workDir: path.join(paths.spool, 'find') },
  );
  closers.add('responder', () => responder.stop());
  return withProblems(compactor, [findProblems, await watchStoreDisk(compositionContext, paths.lake, lakeDiskLow)]);
}
