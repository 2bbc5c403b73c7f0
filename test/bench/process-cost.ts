import { readFileSync } from 'node:fs';
import type { ProcessRole } from '../helpers/processes.ts';
import type { TestService } from '../helpers/service.ts';

/** Who has used the processor: a role of a service, or the process of the benchmark itself, which sends the load. */
export type Worker = ProcessRole | 'load';

/** Clock ticks a second that /proc counts in, on every Linux. */
const ticks = 100;

/** Processor seconds that a process has used, in its own code and the kernel's. Needs /proc. */
export function readProcessSeconds(pid: number): number {
  // Behind the name, which may hold anything, the first field is the third of proc(5); the times are the 14th and 15th.
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) / ticks;
}

/** Processor seconds that each part of a service, and this process, have used so far. */
export function readCosts(service: TestService): ReadonlyMap<Worker, number> {
  const costs = new Map<Worker, number>([['load', readProcessSeconds(process.pid)]]);
  for (const { pid, role } of service.processes()) costs.set(role, (costs.get(role) ?? 0) + readProcessSeconds(pid));
  return costs;
}

/** What each has used between two readings. */
export function costsBetween(
  before: ReadonlyMap<Worker, number>,
  after: ReadonlyMap<Worker, number>,
): ReadonlyMap<Worker, number> {
  return new Map([...after].map(([worker, seconds]) => [worker, seconds - (before.get(worker) ?? 0)]));
}
