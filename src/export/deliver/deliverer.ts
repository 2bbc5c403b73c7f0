/**
 * Delivers the files of exports to buckets and folders of their accounts.
 *
 * In: exports that succeeded and name a destination. Out: each file once under its own name, then the signed manifest,
 * retried with backoff until the export expires. One host runs it: see src/export/tasks.ts.
 * Invariant: a file gets its name when it is complete; the manifest comes after all files.
 * Crash: files that have their name are not sent again; an interrupted file is sent again under the same name.
 */
import { createHash } from 'node:crypto';
import { createKeyedSemaphore } from '../../runtime/async/semaphore.ts';
import type { Clock } from '../../runtime/clock.ts';
import { describeError, isAppError } from '../../runtime/errors.ts';
import { createCheckedLookup, type EgressPolicy } from '../../runtime/http/egress-policy.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { Problem } from '../../runtime/problems/problem.ts';
import { openBucketDrop, type FileDrop } from '../../runtime/store/s3-drop.ts';
import type { ByteSource } from '../../runtime/store/s3-write.ts';
import {
  decryptDestinationSecret,
  openDestinations,
  type Destination,
  type DestinationPaths,
} from '../../destinations/destination-store.ts';
import { refuseTarget } from '../../destinations/target.ts';
import { partKey, type ReportDelivery } from '../../reports/report-records.ts';
import { fileStem, isExpired, type ReportJob } from '../../reports/reports.ts';
import { manifestName } from '../../reports/manifest.ts';
import type { ReportStore } from '../../reports/store.ts';
import {
  createRetryLoops,
  defaultDeliveryOptions,
  isAttemptDue,
  retryDelayAfter,
  type DeliveryOptions,
} from '../notify/retry-schedule.ts';
import { openFolderDrop } from './sftp-drop.ts';

export interface DelivererDependencies {
  readonly store: ReportStore;
  readonly paths: DestinationPaths;
  readonly rules: EgressPolicy;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Renders the signed manifest of an export; undefined without its key. */
  readonly renderManifest: (job: ReportJob) => string | undefined;
}

/** Exports that are delivered at a time, and those of one account. A destination gets one at a time. */
const [deliveriesAtOnce, perAccount] = [4, 2];

const nothingDelivered: ReportDelivery = { state: 'waiting', attempts: 0, nextMs: 0, files: 0 };

/** Opens the place of a destination, until the signal aborts. Connects only to addresses that the rules allow. */
async function openDrop(
  { target, idAccount }: Destination,
  secret: string,
  rules: EgressPolicy,
  signal: AbortSignal,
): Promise<FileDrop> {
  const lookup = createCheckedLookup(rules, String(idAccount), signal);
  if (target.kind === 'sftp') return await openFolderDrop(target, secret, lookup, signal);
  const { endpoint, region, bucket, pathStyle, accessKeyId, prefix } = target;
  const credentials = { accessKeyId, secretAccessKey: secret };
  return await openBucketDrop({ endpoint, region, bucket, pathStyle, credentials, lookup, signal }, prefix);
}

/** Creates the delivery of one export to one destination, file by file. `onFile` gets the number of files so far. */
function createTransfer(
  { store, paths, rules, renderManifest }: DelivererDependencies,
  signal: AbortSignal,
): (job: ReportJob, destination: Destination, onFile: (files: number) => Promise<void>) => Promise<void> {
  async function putFiles(job: ReportJob, drop: FileDrop, onFile: (files: number) => Promise<void>): Promise<void> {
    const { files = [] } = job;
    for (const [index, { name, sha256, bytes }] of files.entries()) {
      signal.throwIfAborted();
      const key = partKey(job, name);
      const part = await store.objects.open(key);
      if (part === undefined) throw new Error(`${name} is missing`);
      try {
        const source: ByteSource = { sizeBytes: bytes, read: (position, length) => part.read(position, length) };
        await drop.put(name, source, sha256);
      } finally {
        await part.close();
      }
      signal.throwIfAborted();
      await onFile(index + 1);
    }
  }

  return async (job, destination, onFile) => {
    const refusal = refuseTarget(destination.target, rules);
    if (refusal !== undefined) throw new Error(refusal);
    const manifest = renderManifest(job);
    if (manifest === undefined) throw new Error('the manifest cannot be signed');
    const secret = await decryptDestinationSecret(paths, destination);
    const drop = await openDrop(destination, secret, rules, signal);
    try {
      await putFiles(job, drop, onFile);
      signal.throwIfAborted();
      const bytes = Buffer.from(manifest);
      const source: ByteSource = {
        sizeBytes: bytes.length,
        read: async (position, length) => bytes.subarray(position, position + length),
      };
      await drop.put(manifestName(fileStem(job)), source, createHash('sha256').update(bytes).digest('hex'));
    } finally {
      drop.close();
    }
  };
}

const isDeliverable = (job: ReportJob | undefined, nowMs: number): job is ReportJob & { readonly deliverTo: string } =>
  job?.state === 'success' && job.deliverTo !== undefined && !isExpired(job, nowMs);

/**
 * Creates the attempts to deliver exports. An attempt returns the time of the next one, Unix ms; undefined if none is
 * left. `failing` gets the error of each export that is tried again.
 */
function createAttempts(
  dependencies: DelivererDependencies,
  options: DeliveryOptions,
  signal: AbortSignal,
  failing: Map<number, string>,
): (id: number) => Promise<number | undefined> {
  const { store, paths, clock, logger } = dependencies;
  const transfer = createTransfer(dependencies, signal);
  const [destinations, accounts] = [createKeyedSemaphore(), createKeyedSemaphore(perAccount, deliveriesAtOnce)];

  /** Records a state, except over the end of the delivery: another host may have the tasks now. */
  async function record(id: number, delivery: ReportDelivery): Promise<void> {
    if ((await store.readDelivery(id))?.state === 'delivered' || signal.aborted) return;
    await store.writeDelivery(id, delivery);
  }

  async function fail(job: ReportJob, before: ReportDelivery, error: unknown): Promise<number> {
    const attempts = before.attempts + 1;
    const lastError = describeError(error);
    const nextMs = clock.nowMs() + retryDelayAfter(attempts, options);
    const { files } = (await store.readDelivery(job.id)) ?? nothingDelivered;
    await record(job.id, { state: 'waiting', attempts, nextMs, files, lastError });
    failing.set(job.id, lastError);
    logger.warn({ idReport: job.id, attempts, error: lastError }, 'delivery failed, will retry');
    return nextMs;
  }

  async function giveUp(job: ReportJob, before: ReportDelivery, lastError: string): Promise<void> {
    const attempts = before.attempts + 1;
    await record(job.id, { state: 'failed', attempts, nextMs: 0, files: before.files, lastError });
    failing.delete(job.id);
    logger.error({ idReport: job.id, error: lastError }, 'export not delivered');
  }

  async function deliverTo(job: ReportJob, idDestination: string, before: ReportDelivery): Promise<void> {
    const { id, idAccount, files = [] } = job;
    // Read now: it may have been removed, or have another secret.
    const destination = await openDestinations(paths).find(idAccount, idDestination);
    if (destination === undefined) return await giveUp(job, before, 'the destination was removed');
    await transfer(job, destination, (sent) => record(id, { ...before, files: sent }));
    signal.throwIfAborted();
    const attempts = before.attempts + 1;
    await record(id, { state: 'delivered', attempts, nextMs: 0, files: files.length, atMs: clock.nowMs() });
    logger.info({ idReport: id, idDestination, files: files.length, attempts }, 'export delivered');
  }

  return async (id) => {
    const job = await store.find(id);
    if (!isDeliverable(job, clock.nowMs())) return undefined;
    const before = (await store.readDelivery(id)) ?? nothingDelivered;
    if (before.state !== 'waiting') return undefined;
    if (!isAttemptDue(before.nextMs, clock.nowMs(), options)) return before.nextMs;
    const { idAccount, deliverTo: idDestination } = job;
    try {
      // The slot of the destination first: exports that wait for a slow one take no other slot.
      await destinations.run(
        idDestination,
        () => accounts.run(idAccount, () => deliverTo(job, idDestination, before), signal),
        signal,
      );
      failing.delete(id);
      return undefined;
    } catch (error) {
      if (signal.aborted) return undefined;
      if (!isAppError(error, 'file_damaged')) return await fail(job, before, error);
      await giveUp(job, before, describeError(error));
      return undefined;
    }
  };
}

/** Starts the deliverer, which waits for its first export. */
export function startDeliverer(dependencies: DelivererDependencies, options: DeliveryOptions = defaultDeliveryOptions) {
  const { store, clock, logger } = dependencies;
  const aborter = new AbortController();
  const { signal } = aborter;
  const failing = new Map<number, string>();
  const attempt = createAttempts(dependencies, options, signal, failing);
  const busy = new Set<number>();
  const loops = createRetryLoops(clock, options, signal, (id, error) =>
    logger.error({ idReport: id, error: describeError(error) }, 'cannot deliver export, will retry'),
  );

  async function attemptHeld(id: number): Promise<number | undefined> {
    busy.add(id);
    try {
      return await attempt(id);
    } finally {
      busy.delete(id);
      if (!isDeliverable(store.lastRead(id), clock.nowMs())) failing.delete(id);
    }
  }

  const deliver = (id: number): void => loops.start(id, () => attemptHeld(id));
  return {
    deliver,
    /** Delivers what earlier processes have left. */
    deliverMissed(): void {
      for (const job of store.list()) if (isDeliverable(job, clock.nowMs())) deliver(job.id);
    },
    /** Reports whether the files of an export are being sent now, so that they must stay. */
    isHeld: ({ id }: ReportJob): boolean => busy.has(id),
    notices: (): readonly Problem[] =>
      [...failing].map(([id, error]) => ({
        code: 'delivery_failing' as const,
        subject: String(id),
        message: `export ${id} is not delivered: ${error}`,
        action: 'Check the destination, its secret and TRIBUTARY_DELIVERY_ALLOW; it is retried until it expires.',
      })),
    async stop(): Promise<void> {
      aborter.abort();
      await loops.ended();
    },
  };
}
