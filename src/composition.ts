import assert from 'node:assert/strict';
import { openHealth, withProblems, type Composition, type CompositionContext } from './composition/context.ts';
import { createClock } from './runtime/clock.ts';
import { createDescriptorWatch } from './runtime/files/disk-watch.ts';
import { findBuild } from './runtime/files/package-files.ts';
import { buildWithClosers } from './runtime/lifecycle.ts';
import type { Stage } from './runtime/processes/role-process.ts';
import { openTracing } from './runtime/tracing/tracing.ts';
import type { Role } from './service/service-options.ts';

/**
 * The composition root of one process: opens the stores a role needs, starts its stage on them, and returns what stops
 * them in reverse. Read together with service.ts, which runs these processes, it is the architecture.
 *
 *   ingest:  access -> [ingest] -> stream        compact: stream -> [compact] -> lake
 *   export:  access, lake -> [export] -> reports
 *
 * A stage with a public port also serves the service's readiness there.
 */

/** Starters by role, loaded on demand: an ingest worker must not load the SQL engine. */
const starters: Readonly<Record<Role, (compositionContext: CompositionContext) => Promise<Stage>>> = {
  ingest: async (compositionContext) =>
    (await import('./composition/ingest-stage.ts')).startIngestStage(compositionContext),
  compact: async (compositionContext) =>
    (await import('./composition/compact-stage.ts')).startCompactStage(compositionContext),
  export: async (compositionContext) =>
    (await import('./composition/export-stage.ts')).startExportStage(compositionContext),
};

/** Starts a stage that rejects every request and uses no folder, since the folders are not the service's own now. */
async function startClosed(role: Role, compositionContext: CompositionContext): Promise<Stage> {
  const { config, logger, closed = '' } = compositionContext;
  assert(role !== 'compact', 'a closed compactor has no client to reject');
  const { addRoutes, onService } = await openHealth(compositionContext);
  const { host, s2sPort, apiPort } = config;
  const stage =
    role === 'ingest'
      ? await (await import('./ingest/server.ts')).startUnavailableIngest({ host, port: s2sPort }, addRoutes, logger)
      : await (
          await import('./export/api/server.ts')
        ).startUnavailableExport({ host, port: apiPort }, addRoutes, logger);
  const problem = {
    code: 'process_closed',
    subject: role,
    message: `${role} rejects every request: ${closed}`,
    action: 'Resolve that problem, which is listed too: the process then restarts automatically.',
  } as const;
  return { ...stage, facts: () => ({ problems: [problem] }), onService };
}

/** Starts the stage of a role on its stores. A failed start closes what was opened. */
export async function startStage(role: Role, composition: Composition): Promise<Stage> {
  const { config, logger, metrics } = composition;
  return buildWithClosers(logger, async (closers) => {
    const clock = createClock(config.clockOffsetSeconds);
    const descriptors = createDescriptorWatch(role);
    const { version } = findBuild();
    const tracing = await openTracing(config.traceExport, { metrics, logger, role, version });
    closers.add('traces', () => tracing?.stop());
    const parts = { ...composition, clock, closers, tracing };
    const started = composition.closed === undefined ? starters[role](parts) : startClosed(role, parts);
    const stage = withProblems(await started, [() => descriptors.problems()]);
    closers.add(role, () => stage.stop());
    return { ...stage, stop: () => closers.stop() };
  });
}
