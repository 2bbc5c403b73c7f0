import type { AccessPaths } from '../../access/access-file.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Problem } from '../../runtime/conditions/problem.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { ProcessState } from '../../runtime/processes/supervisor.ts';
import type { AddMethod } from '../api/methods-routes.ts';
import { addAppChanges, addUserChanges } from './access-changes.ts';
import { createOperatorMethods } from './operator-methods.ts';

/**
 * Operations: operators read the status of the service and change apps and users.
 *
 * In: calls of operators by the API (api/methods-routes.ts). Out: the status that composition reads, lists of apps and
 * users, changes by the functions of the commands.
 * Invariant: other users get a 403; a token or a secret is shown once and stored hashed or encrypted; each change is
 * logged with its operator.
 * Crash: a change is made or not (access/access-file.ts); one whose response was lost shows in the lists.
 */
export interface Operations {
  readonly paths: AccessPaths;
  readonly readStatus: () => Promise<ServiceStatus>;
}

/** Counts of one ingest process since its start. */
export interface IngestCounts {
  readonly process: string;
  readonly pid: number | undefined;
  readonly events: number;
  /** Rejected requests by reason; zero counts are absent. */
  readonly refused: Readonly<Record<string, number>>;
}

/** State of the lake; members of a process that is down are absent. */
export interface LakeStatus {
  readonly version?: number;
  readonly files?: number;
  readonly streamed?: number;
  readonly stored?: number;
  readonly failed?: number;
  readonly repeats?: number;
  readonly erased?: number;
  /** Time up to which the lake is complete, ISO 8601. */
  readonly watermark?: string;
}

export interface StreamStatus {
  readonly messages: number;
  readonly bytes: number;
  /** Messages that the lake lacks; absent if its position is unknown. */
  readonly lagMessages?: number;
}

/** A disk, and the folders of the service on it. */
interface DiskStatus {
  readonly holds: readonly string[];
  readonly freeBytes: number;
  readonly totalBytes: number;
}

export interface ServiceStatus {
  /** ISO 8601, by the service's clock. */
  readonly at: string;
  readonly ready: boolean;
  readonly startedAt: string | undefined;
  readonly version: string;
  readonly processes: readonly ProcessState[];
  readonly ingest: readonly IngestCounts[];
  readonly stream: StreamStatus | undefined;
  readonly lake: LakeStatus;
  readonly exports: { readonly running: number; readonly inProgress: number; readonly reports: number };
  /** Free space at which imports are rejected. */
  readonly diskReserveBytes: number;
  readonly disks: readonly DiskStatus[];
  readonly problems: readonly Problem[];
  readonly notices: readonly Problem[];
}

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
