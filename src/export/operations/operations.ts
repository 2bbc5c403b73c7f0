import type { AccessPaths } from '../../access/access-file.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { ProcessState } from '../../runtime/processes/supervisor.ts';
import type { AddMethod } from '../api/methods-routes.ts';
import { addAppChanges } from './app-changes.ts';
import { createOperatorMethods } from './operator-methods.ts';
import { addUserChanges } from './user-changes.ts';

/**
 * Operations: what operators do by the export area: look at how the service is, and change who may do what.
 *
 * In: calls of users who are operators, by the routes of the API (api/methods-routes.ts). Out: the service's status as
 * composition reads it, lists of apps and users, changes by the functions that the commands call.
 * Invariant: nobody but an operator gets anything but a 403; a token or a secret is shown once, by what made it, and
 * rests nowhere in the clear; each change has a line in the log that names who made it.
 * Crash: a change is made or not (access/access-file.ts); one whose answer was lost shows in the lists.
 */
export interface Operations {
  readonly paths: AccessPaths;
  /** Reads how the service is now. */
  readonly readStatus: () => Promise<ServiceStatus>;
}

/** What import has counted in one process since its start. */
export interface IngestCounts {
  readonly process: string;
  readonly pid: number | undefined;
  /** Events that were acknowledged. */
  readonly events: number;
  /** Requests that were refused, by reason; reasons that never came are absent. */
  readonly refused: Readonly<Record<string, number>>;
}

/** How the lake is; what nobody says now, because its process is down, is absent. */
export interface LakeStatus {
  readonly version?: number;
  readonly files?: number;
  readonly streamed?: number;
  readonly stored?: number;
  readonly failed?: number;
  readonly repeats?: number;
  readonly erased?: number;
  /** Up to when every acknowledged event is in the lake, ISO 8601. */
  readonly watermark?: string;
}

/** What waits in the stream. */
export interface StreamStatus {
  readonly messages: number;
  readonly bytes: number;
  /** Messages that the lake has not yet; absent while nobody says where it is. */
  readonly lagMessages?: number;
}

/** A disk, and what of the service lies on it. */
interface DiskStatus {
  readonly holds: readonly string[];
  readonly freeBytes: number;
  readonly totalBytes: number;
}

/** How the service is. */
export interface ServiceStatus {
  /** ISO 8601, by the service's clock. */
  readonly at: string;
  /** Nothing is wrong. */
  readonly ready: boolean;
  readonly startedAt: string | undefined;
  readonly version: string;
  readonly processes: readonly ProcessState[];
  readonly ingest: readonly IngestCounts[];
  readonly stream: StreamStatus | undefined;
  readonly lake: LakeStatus;
  readonly exports: { readonly running: number; readonly inProgress: number; readonly reports: number };
  /** What import stops taking events at, bytes free. */
  readonly diskReserveBytes: number;
  readonly disks: readonly DiskStatus[];
  readonly problems: readonly Problem[];
  readonly notices: readonly Problem[];
}

/** Adds what operators do by the export area. */
export function addOperations(
  addMethod: AddMethod,
  { paths, readStatus }: Operations,
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
): void {
  const methods = createOperatorMethods(addMethod, logger.child({ stage: 'operations' }));
  methods.look('/api/operations/v1/status.json', 'operations_status', [], () => readStatus());
  addAppChanges(methods, paths, clock);
  addUserChanges(methods, paths);
}
