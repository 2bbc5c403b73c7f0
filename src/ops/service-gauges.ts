import process from 'node:process';
import { problemCodes, type Problem } from '../runtime/problems/problem.ts';
import { findBuild } from '../runtime/files/package-files.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { ProcessState } from '../runtime/processes/supervisor.ts';
import { withTimeout } from '../runtime/async/in-parallel.ts';
import { readDiskSpace, type DiskSpace } from '../runtime/files/disk-watch.ts';

export interface ServiceFigures {
  readonly problems: readonly Problem[];
  readonly warnings: readonly Problem[];
  readonly processes: readonly ProcessState[];
}

/** Counts a list by code. Each code has an entry, so that alert rules see changes. */
function countByCode(found: readonly Problem[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>(problemCodes.map((code) => [code, 0]));
  for (const { code } of found) counts.set(code, (counts.get(code) ?? 0) + 1);
  return counts;
}

/** Adds the gauges of the service and its build. */
export function registerServiceGauges(metrics: Metrics, figures: () => ServiceFigures): void {
  const problems = metrics.gauge('service_problems', 'Current problems, as /readyz lists them.');
  const problemsByCode = metrics.gauge(
    'service_problems_by_code',
    'Current problems by code; 0 for codes without one.',
    ['code'],
  );
  const warningsByCode = metrics.gauge(
    'service_warnings_by_code',
    "Current warnings by code, as 'tributary status' lists them.",
    ['code'],
  );
  const running = metrics.gauge('service_process_running', 'Whether the process runs: 1 or 0.', ['process']);
  const restarts = metrics.counter(
    'service_process_restarts_total',
    'Restarts of the process since the service started.',
    ['process'],
  );
  metrics
    .gauge('service_start_time_seconds', 'Start time of the supervisor, Unix seconds.')
    .set(Math.floor(performance.timeOrigin / 1000));
  const { version, commit } = findBuild();
  metrics
    .gauge('build_info', 'Version, commit and Node.js version of the program; always 1.', ['version', 'commit', 'node'])
    .set({ version, commit: commit ?? 'unknown', node: process.version }, 1);

  metrics.beforeRead(() => {
    const shown = figures();
    problems.set(shown.problems.length);
    for (const [code, count] of countByCode(shown.problems)) problemsByCode.set({ code }, count);
    for (const [code, count] of countByCode(shown.warnings)) warningsByCode.set({ code }, count);
    restarts.reset();
    for (const { name, state, restarts: count } of shown.processes) {
      running.set({ process: name }, state === 'running' ? 1 : 0);
      restarts.inc({ process: name }, count);
    }
  });
}

/** Timeout of a disk that hangs, ms. */
const answerMs = 500;

/** Folders by label, and the free space that is reserved on their disks. */
export interface WatchedDisks {
  readonly folders: Readonly<Record<string, string>>;
  readonly reserveBytes: number;
}

/** Adds the gauges of free space. Missing folders have none, nor has a folder on a disk that hangs, or one after it. */
export function registerDiskGauges(
  metrics: Metrics,
  { folders, reserveBytes }: WatchedDisks,
  readRoom: (folder: string) => Promise<DiskSpace> = readDiskSpace,
): void {
  const free = metrics.gauge(
    'disk_free_bytes',
    'Free space on the disk of a folder. Folders on one disk have the same value.',
    ['folder'],
  );
  const size = metrics.gauge('disk_size_bytes', 'Size of the disk of a folder.', ['folder']);
  const reserve = metrics.gauge('disk_reserve_bytes', 'Reserved free space (TRIBUTARY_DISK_RESERVE_BYTES).');
  reserve.set(reserveBytes);
  /** Folders that the current round has not read yet. */
  const awaited = new Set<string>();
  let looking: Promise<void> | undefined;

  function show(folder: string, room: DiskSpace | undefined): void {
    for (const [gauge, bytes] of [[free, room?.freeBytes] as const, [size, room?.sizeBytes] as const]) {
      if (bytes === undefined) gauge.remove({ folder });
      else gauge.set({ folder }, bytes);
    }
  }

  /** Reads the folders in turn: a read of a disk that hangs holds a thread of the process. */
  async function readDisks(): Promise<void> {
    for (const folder of Object.keys(folders)) awaited.add(folder);
    for (const [folder, place] of Object.entries(folders)) {
      const room = await readRoom(place).catch(() => undefined);
      awaited.delete(folder);
      show(folder, room);
    }
  }

  metrics.beforeRead(async () => {
    looking ??= readDisks().finally(() => {
      looking = undefined;
    });
    await withTimeout(answerMs, looking).catch(() => awaited.forEach((folder) => show(folder, undefined)));
  });
}
