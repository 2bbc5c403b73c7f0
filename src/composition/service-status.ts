import { dataPaths } from '../config.ts';
import type { IngestCounts, LakeStatus, ServiceStatus, StreamStatus } from '../export/admin-api/operations.ts';
import { findWarnings, findProblems } from '../ops/health.ts';
import { withTimeout } from '../runtime/async/in-parallel.ts';
import { readDisks } from '../runtime/files/disk-watch.ts';
import { createLogger } from '../runtime/logger.ts';
import { findBuild } from '../runtime/files/package-files.ts';
import { readServiceStates, type ServiceState } from '../runtime/processes/service-state.ts';
import { openConnection } from '../stream/connection.ts';
import { openReader } from '../stream/reader.ts';
import type { CompositionContext } from './context.ts';

/** Time for which a status is shared by all readers, ms. */
const freshMs = 1000;
/** Timeout of a disk, ms: the status is shown without a blocked one. */
const diskAnswerMs = 500;

type Facts = ServiceState['facts'][string];

const numberOf = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined);

function numbersOf<Name extends string>(facts: Facts, names: readonly Name[]): Partial<Record<Name, number>> {
  return Object.fromEntries(
    names.flatMap((name) => (typeof facts[name] === 'number' ? [[name, facts[name]] as const] : [])),
  ) as Partial<Record<Name, number>>;
}

function describeLake(facts: Facts): LakeStatus {
  const { watermark } = facts;
  return {
    ...numbersOf(facts, ['version', 'files', 'streamed', 'stored', 'failed', 'repeats', 'erased']),
    ...(typeof watermark === 'string' ? { watermark } : {}),
  };
}

function describeIngest({ facts, processes }: ServiceState): IngestCounts[] {
  return Object.entries(facts).flatMap(([process, { events, refused }]) => {
    if (typeof events !== 'number' || typeof refused !== 'object' || refused === null) return [];
    const pid = processes.find(({ name }) => name === process)?.pid;
    return [{ process, pid, events, refused: refused as IngestCounts['refused'] }];
  });
}

/** Shares a read with all callers while it runs and for `forMs` after it. */
function shareFor<T>(forMs: number, read: () => Promise<T>): () => Promise<T> {
  let shared: { readonly result: Promise<T>; untilMs: number } | undefined;
  return () => {
    if (shared !== undefined && performance.now() < shared.untilMs) return shared.result;
    const started = { result: read(), untilMs: Infinity };
    const end = (): void => void (started.untilMs = performance.now() + forMs);
    started.result.then(end, end);
    shared = started;
    return started.result;
  };
}

async function readStream(
  { config }: CompositionContext,
  position: number | undefined,
): Promise<StreamStatus | undefined> {
  const { natsUrl: url, streamName } = config;
  if (url === undefined) return undefined;
  const connection = await openConnection({ url, name: 'tributary-export-status', logger: createLogger('silent') });
  try {
    const { messages, bytes, lastSequence } = await (await openReader(connection, { streamName })).state();
    const lag = position === undefined ? {} : { lagMessages: Math.max(0, lastSequence - position) };
    return { messages, bytes, ...lag };
  } finally {
    await connection.close();
  }
}

/** Returns a reader of the status that the console shows: state files, and the stream if there is a broker. */
export function openServiceStatus(compositionContext: CompositionContext): () => Promise<ServiceStatus> {
  const { config, clock } = compositionContext;
  const paths = dataPaths(config.dataDir);
  const { version } = findBuild();
  const { nats: stream, lake, reports } = paths;
  // A read of a blocked disk occupies a thread, so that at most one runs.
  const findDisks = shareFor(0, () => readDisks({ data: config.dataDir, stream, lake, reports }));
  return shareFor(freshMs, async () => {
    const services = readServiceStates(paths.run);
    const nowMs = clock.nowMs();
    const factsOf = (process: string): Facts => services.find(({ facts }) => process in facts)?.facts[process] ?? {};
    const [compact, exports] = [factsOf('compact'), factsOf('export')];
    const problems = services.flatMap((service) => findProblems(service, nowMs));
    return {
      at: new Date(nowMs).toISOString(),
      ready: problems.length === 0,
      startedAt: services[0]?.startedAt,
      version,
      processes: services.flatMap((service) => service.processes),
      ingest: services.flatMap(describeIngest),
      stream: await readStream(compositionContext, numberOf(compact['position'])).catch(() => undefined),
      lake: describeLake(compact),
      exports: {
        running: numberOf(exports['exportsRunning']) ?? 0,
        inProgress: numberOf(exports['exportsInProgress']) ?? 0,
        reports: numberOf(exports['reports']) ?? 0,
      },
      diskReserveBytes: config.diskReserveBytes,
      disks: await withTimeout(diskAnswerMs, findDisks()).catch(() => []),
      problems,
      warnings: services.flatMap(findWarnings),
    };
  });
}
