import process from 'node:process';
import { problemCodes, type Problem } from '../runtime/conditions/problem.ts';
import { findBuild } from '../runtime/files/package-files.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { ProcessState } from '../runtime/processes/supervisor.ts';
import { boundedBy } from '../runtime/async/in-parallel.ts';
import { readDiskRoom, type DiskRoom } from '../runtime/files/disk-watch.ts';

/** What the supervisor's own metrics show. */
export interface ServiceFigures {
  readonly problems: readonly Problem[];
  readonly notices: readonly Problem[];
  readonly processes: readonly ProcessState[];
}

/** Says how many of a list each code has; every code is there, so that a rule sees it come and go. */
function countByCode(found: readonly Problem[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>(problemCodes.map((code) => [code, 0]));
  for (const { code } of found) counts.set(code, (counts.get(code) ?? 0) + 1);
  return counts;
}

/** Gives the gauges of the service as its supervisor sees it, and what was built. */
export function followService(metrics: Metrics, figures: () => ServiceFigures): void {
  const problems = metrics.gauge('service_problems', 'Problems that /readyz names now.');
  const problemsByCode = metrics.gauge('service_problems_by_code', 'Problems that /readyz names now, by code.', [
    'code',
  ]);
  const noticesByCode = metrics.gauge('service_notices_by_code', "Notices of 'tributary status' now, by code.", [
    'code',
  ]);
  const running = metrics.gauge('service_process_running', '1 while the process runs, 0 while it does not.', [
    'process',
  ]);
  const restarts = metrics.counter(
    'service_process_restarts_total',
    'How often the process was started again since the service started.',
    ['process'],
  );
  metrics
    .gauge(
      'service_start_time_seconds',
      'When the supervisor was started, Unix seconds: another time after each start.',
    )
    .set(Math.floor(performance.timeOrigin / 1000));
  const { version, commit } = findBuild();
  metrics
    .gauge('build_info', 'What runs: 1.', ['version', 'commit', 'node'])
    .set({ version, commit: commit ?? 'unknown', node: process.version }, 1);

  metrics.beforeRead(() => {
    const shown = figures();
    problems.set(shown.problems.length);
    for (const [code, count] of countByCode(shown.problems)) problemsByCode.set({ code }, count);
    for (const [code, count] of countByCode(shown.notices)) noticesByCode.set({ code }, count);
    restarts.reset();
    for (const { name, state, restarts: count } of shown.processes) {
      running.set({ process: name }, state === 'running' ? 1 : 0);
      restarts.inc({ process: name }, count);
    }
  });
}

/** A disk that has not answered for so long stands still, milliseconds: the service has other metrics to show. */
const answerMs = 500;

/** The folders whose disks are shown, by the name that they have there, and the free space that is kept on each. */
export interface WatchedDisks {
  readonly folders: Readonly<Record<string, string>>;
  readonly reserveBytes: number;
}

/**
 * Gives the gauges of the room on the disks. A folder that is not there is left out; where a disk does not answer, its
 * folders and those that come after them. Folders of one disk show the same.
 */
export function followDisks(
  metrics: Metrics,
  { folders, reserveBytes }: WatchedDisks,
  readRoom: (folder: string) => Promise<DiskRoom> = readDiskRoom,
): void {
  const free = metrics.gauge('disk_free_bytes', 'Bytes free for the service on the disk of a folder.', ['folder']);
  const size = metrics.gauge('disk_size_bytes', 'Size of the disk of a folder.', ['folder']);
  const reserve = metrics.gauge('disk_reserve_bytes', 'Free bytes at which nothing more is taken.');
  reserve.set(reserveBytes);
  /** Folders that the look under way has not come to yet. */
  const awaited = new Set<string>();
  let looking: Promise<void> | undefined;

  function show(folder: string, room: DiskRoom | undefined): void {
    for (const [gauge, bytes] of [[free, room?.freeBytes] as const, [size, room?.sizeBytes] as const]) {
      if (bytes === undefined) gauge.remove({ folder });
      else gauge.set({ folder }, bytes);
    }
  }

  /** One after the other: each look at a disk that stands still holds a thread of the process until that disk moves. */
  async function look(): Promise<void> {
    for (const folder of Object.keys(folders)) awaited.add(folder);
    for (const [folder, place] of Object.entries(folders)) {
      const room = await readRoom(place).catch(() => undefined);
      awaited.delete(folder);
      show(folder, room);
    }
  }

  metrics.beforeRead(async () => {
    looking ??= look().finally(() => {
      looking = undefined;
    });
    await boundedBy(answerMs, looking).catch(() => awaited.forEach((folder) => show(folder, undefined)));
  });
}
