import { readFileSync } from 'node:fs';
import type { ProcessRole } from '../helpers/processes.ts';
import type { TestService } from '../helpers/service.ts';

/** Role of a process that uses the processor: one of the service, or the benchmark, which sends the load. */
export type Worker = ProcessRole | 'load';

/** Clock ticks per second in /proc, on every Linux. */
const ticks = 100;

/** Returns the processor seconds, user and system, of a process. Needs /proc. */
export function readProcessSeconds(pid: number): number {
  // After the name, which may have any bytes, the first field is the third of proc(5); the times are the 14th and 15th.
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) / ticks;
}

/** Returns the processor seconds so far of each role of a service, and of this process. */
export function readCosts(service: TestService): ReadonlyMap<Worker, number> {
  const costs = new Map<Worker, number>([['load', readProcessSeconds(process.pid)]]);
  for (const { pid, role } of service.processes()) costs.set(role, (costs.get(role) ?? 0) + readProcessSeconds(pid));
  return costs;
}

/** Returns the processor seconds of each role between two readings. */
export function costsBetween(
  before: ReadonlyMap<Worker, number>,
  after: ReadonlyMap<Worker, number>,
): ReadonlyMap<Worker, number> {
  return new Map([...after].map(([worker, seconds]) => [worker, seconds - (before.get(worker) ?? 0)]));
}
