import type { Closers } from '../runtime/lifecycle.ts';
import type { RunningChild } from '../runtime/processes/child.ts';
import type { Supervisor } from '../runtime/processes/supervisor.ts';
import type { ServiceOptions } from './service-options.ts';

/** A start of the service under way: what its steps share. */
export interface ServiceStart {
  readonly options: ServiceOptions;
  /** What undoes the steps so far. */
  readonly closers: Closers;
  /** Aborted when the service is stopped while it starts. */
  readonly signal: AbortSignal;
  /** Those of every process of the service; each step adds what it has started. */
  readonly supervisors: Supervisor<RunningChild>[];
}
