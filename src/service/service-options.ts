import path from 'node:path';
import { dataPaths, type Config } from '../config.ts';
import { events } from '../datasets/dataset.ts';
import type { Logger } from '../runtime/logger.ts';
import type { Closers } from '../runtime/lifecycle.ts';
import type { RunningChild } from '../runtime/processes/child.ts';
import type { Supervisor } from '../runtime/processes/supervisor.ts';

/** The roles a child process can have. */
export const roles = ['ingest', 'compact', 'export'] as const;
export type Role = (typeof roles)[number];

export interface ServiceOptions {
  readonly config: Config;
  readonly roles: readonly Role[];
  /** The program's entry file, which the children run. */
  readonly entry: string;
  readonly environment: NodeJS.ProcessEnv;
  readonly logger: Logger;
  /** Serve the operator's address: health with its reasons, and metrics. */
  readonly withOps?: boolean;
  /**
   * Gives the lake to the group of the settings, or takes it back. Left out by a command that runs a compactor for a
   * while: it changes nothing about who may read the lake.
   */
  readonly setsLakeAccess?: boolean;
  /** Aborted when the service is stopped while it starts: the start then ends with `stopping`. */
  readonly signal?: AbortSignal;
  /**
   * The machine's configuration folder, whose package sources a missing nats-server is fetched from; only tests name
   * another than `/etc`.
   */
  readonly etc?: string;
}

/** Says whether these roles work on the stream: to export, no broker is needed. */
export function needStream(own: readonly Role[]): boolean {
  // None: a command wants the folder's own broker for a while.
  return own.length === 0 || own.some((role) => role !== 'export');
}

/** Says whether a service of these roles runs a nats-server of its own, in its data folder. */
export function runsBroker(config: Config, own: readonly Role[]): boolean {
  return config.natsUrl === undefined && needStream(own);
}

/** The lake's folder that lies deepest: where the log is. */
export function logFolderOf({ dataDir }: Config): string {
  return path.join(dataPaths(dataDir).lake, events.table, '_delta_log');
}

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
