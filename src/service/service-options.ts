import path from 'node:path';
import { dataPaths, type Config } from '../config.ts';
import { events } from '../datasets/dataset.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Closers } from '../runtime/lifecycle.ts';
import type { RunningChild } from '../runtime/processes/child.ts';
import type { Supervisor } from '../runtime/processes/supervisor.ts';

export const roles = ['ingest', 'compact', 'export'] as const;
export type Role = (typeof roles)[number];

export interface ServiceOptions {
  readonly config: Config;
  readonly roles: readonly Role[];
  /** The program's entry file. */
  readonly entry: string;
  readonly environment: NodeJS.ProcessEnv;
  readonly logger: Logger;
  /** Whether the operator's address is served. */
  readonly withOps?: boolean;
  /** Whether the start gives `TRIBUTARY_LAKE_GROUP` access to the lake. Commands that run a compactor leave it off. */
  readonly setsLakeAccess?: boolean;
  /** Aborts the start, which then throws `stopping`. */
  readonly signal?: AbortSignal;
  /** The folder with the package sources of nats-server [/etc]. */
  readonly etc?: string;
}

/** Reports whether these roles need the stream. The export role does not; a command, which has no roles, does. */
export function needsStream(own: readonly Role[]): boolean {
  return own.length === 0 || own.some((role) => role !== 'export');
}

/** Reports whether a service of these roles runs nats-server in its data folder. */
export function runsBroker(config: Config, own: readonly Role[]): boolean {
  return config.natsUrl === undefined && needsStream(own);
}

/** Returns the log folder of the events table: creating it creates all folders above it. */
export function logFolderOf({ dataDir }: Config): string {
  return path.join(dataPaths(dataDir).lake, events.table, '_delta_log');
}

/** The state that the steps of a start share. */
export interface ServiceStart {
  readonly options: ServiceOptions;
  /** Undo the completed steps. */
  readonly closers: Closers;
  readonly signal: AbortSignal;
  /** The supervisors of all processes that were started. */
  readonly supervisors: Supervisor<RunningChild>[];
}
