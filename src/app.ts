import { withProblems, type Composition, type Parts } from './app/stage-parts.ts';
import { createClock } from './runtime/clock.ts';
import { createDescriptorWatch } from './runtime/files/disk-watch.ts';
import { buildWithClosers } from './runtime/lifecycle.ts';
import type { Stage } from './runtime/processes/role-process.ts';
import type { Role } from './service/service-options.ts';

/**
 * The composition root of one process: opens the stores a role needs, starts its stage on them, and returns what stops
 * them in reverse. Read together with service.ts, which runs these processes, it is the architecture.
 *
 *   ingest:  access -> [ingest] -> stream        compact: stream -> [compact] -> lake
 *   export:  access, lake -> [export] -> reports
 *
 * What serves a public port also answers there whether the service is ready.
 */

/** How each role is composed. It is loaded by the role that runs it, so that an ingest worker carries no SQL engine. */
const starters: Readonly<Record<Role, (parts: Parts) => Promise<Stage>>> = {
  ingest: async (parts) => (await import('./app/ingest-stage.ts')).startIngestStage(parts),
  compact: async (parts) => (await import('./app/compact-stage.ts')).startCompactStage(parts),
  export: async (parts) => (await import('./app/export-stage.ts')).startExportStage(parts),
};

/** Starts what only answers that the role is closed, when the composition says so. */
async function startClosed(role: Role, parts: Parts): Promise<Stage> {
  return (await import('./app/closed-stage.ts')).startClosedStage(role, parts);
}

/** Starts the stage of a role on its stores. A start that fails half-way closes what it had opened. */
export async function startStage(role: Role, composition: Composition): Promise<Stage> {
  return buildWithClosers(composition.logger, async (closers) => {
    const clock = createClock(composition.config.clockOffsetSeconds);
    const descriptors = createDescriptorWatch(role);
    const parts = { ...composition, clock, closers };
    const started = composition.closed === undefined ? starters[role](parts) : startClosed(role, parts);
    const stage = withProblems(await started, [() => descriptors.problems()]);
    closers.add(role, () => stage.stop());
    return { ...stage, stop: () => closers.stop() };
  });
}
