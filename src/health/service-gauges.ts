import process from 'node:process';
import { problemCodes, type Problem } from '../runtime/conditions/problem.ts';
import { findBuild } from '../runtime/files/package-files.ts';
import type { Metrics } from '../runtime/metrics.ts';
import type { ProcessState } from '../runtime/processes/supervisor.ts';

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
