/**
 * The export area: the requests of users and their limits.
 *
 * In: authorized calls within their quota. Out: requests in the report store; a refusal is a value (envelope.ts).
 * Invariant: a create is acknowledged after its request is durable; the limit of simultaneous requests holds for
 * concurrent creates, and may be exceeded by creates on several hosts at the same moment; requests of another account
 * are not found.
 * Crash: nothing is kept here; a request that was stored and not acknowledged runs, and expires.
 */
import type { User } from '../../access/access.ts';
import { defaultFormat, getFormat } from '../../datasets/file-formats.ts';
import { isExpired, type NewReport, type ReportJob, type ReportSlot } from '../../reports/reports.ts';
import type { ReportStore } from '../../reports/store.ts';
import { defined } from '../../runtime/files/checksummed-json.ts';
import { createMutex } from '../../runtime/async/semaphore.ts';
import { pause } from '../../runtime/async/retry.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { ExportSpec } from '../jobs/export-spec.ts';
import type { JobRunner } from '../jobs/scheduler.ts';
import type { Arguments } from './arguments.ts';
import { badRequest, isApiError, lacksPermission, unavailable, type ExportApiError } from './envelope.ts';
import { parseId } from './methods-routes.ts';
import type { ParseRequest } from './parse-request.ts';

export type Exports = ReturnType<typeof createExports>;

interface ExportsDependencies {
  readonly store: ReportStore;
  readonly runner: JobRunner;
  readonly clock: Clock;
  readonly parseRequest: ParseRequest;
  readonly loaded: Promise<void>;
}

const clientGone: ExportApiError = { code: 400, detail: 'The client has disconnected' };

function refuseOver(jobs: readonly ReportJob[], limit: number): ExportApiError | undefined {
  if (jobs.length < limit) return undefined;
  const exports = jobs.map((job) => ({ idRawExport: String(job.id) }));
  return badRequest(`The maximum number of simultaneous requests is reached: ${limit}. Wait for room in the queue.`, {
    exports,
  });
}

/** Requests of an account or user that slots cannot use: missed slots never block it. Shared if the limit is 1. */
const placesForCalls = 1;

/** As `refuseOver`, for the request of a slot. */
function refuseSlotOver(jobs: readonly ReportJob[], limit: number): ExportApiError | undefined {
  const ofSlots = jobs.filter(({ slot }) => slot !== undefined);
  return refuseOver(jobs, limit) ?? refuseOver(ofSlots, Math.max(limit - placesForCalls, 1));
}

/** Refuses a request of a user that exceeds the limit of the account, or that of the user. */
function refuseOverLimits(
  inProgress: readonly ReportJob[],
  { idUser, idAccount, maxExports }: User,
  slot: ReportSlot | undefined,
  ofAccounts: number,
): ExportApiError | undefined {
  const refuse = slot === undefined ? refuseOver : refuseSlotOver;
  const ofAccount = inProgress.filter((job) => job.idAccount === idAccount);
  const ofUser = ofAccount.filter((job) => job.idUser === idUser);
  return refuse(ofAccount, ofAccounts) ?? (maxExports === undefined ? undefined : refuse(ofUser, maxExports));
}

/** Returns what arguments, which were parsed, say of an export besides its rows. */
export function readLabels(given: Arguments): Pick<NewReport, 'name' | 'deliverTo'> {
  return defined({ name: given.get('name')?.[0]?.trim(), deliverTo: given.get('deliverTo')?.[0] });
}

function withUsersFiles(request: ExportSpec, { files }: User): ExportSpec {
  const isOpen = request.compression === undefined && getFormat(request.format ?? defaultFormat).kind === 'text';
  return files === 'gzip' && isOpen ? { ...request, compression: 'gzip' } : request;
}

/** Creates the methods of users on the export requests of their account; those of other accounts are not found. */
export function createExports(
  { store, runner, clock, parseRequest, loaded }: ExportsDependencies,
  options: { readonly maxExports: number; readonly loadWaitMs?: number },
) {
  const creates = createMutex();

  /** `reserve`: returns the id of a slot's request; undefined for the next one. Its errors are thrown. */
  async function createWithin(
    user: User,
    parsed: ExportSpec,
    { name, deliverTo, slot, traceparent }: Pick<NewReport, 'name' | 'deliverTo' | 'slot' | 'traceparent'>,
    reserve: () => Promise<number | undefined> = async () => undefined,
  ): Promise<ReportJob | ExportApiError> {
    const { idUser, idAccount } = user;
    await store.refresh((job) => job.idAccount === idAccount);
    const exportApiError = refuseOverLimits(store.inProgress(), user, slot, options.maxExports);
    if (exportApiError !== undefined) return exportApiError;
    const request = withUsersFiles(parsed, user);
    const { event } = request;
    const id = await reserve();
    return store.create({ idUser, idAccount, event, request, ...defined({ name, deliverTo, slot, traceparent }) }, id);
  }

  async function readRequest(user: User, given: Arguments): Promise<ExportSpec | ExportApiError> {
    if (!user.canExport) return lacksPermission;
    const parsed = await parseRequest(user.idAccount, given, clock.nowMs());
    return isApiError(parsed) ? parsed : withUsersFiles(parsed, user);
  }

  /**
   * Creates a request; none if the client has disconnected (`isGone`): its unknown id would count for the limit.
   * `traceparent`: the context of a traced call.
   */
  async function create(
    user: User,
    callArguments: Arguments,
    isGone: () => boolean,
    traceparent?: string,
  ): Promise<ReportJob | ExportApiError> {
    const parsed = await readRequest(user, callArguments);
    if (isApiError(parsed)) return parsed;
    const job = await creates.run(async () => {
      if (isGone()) return clientGone;
      const created = await createWithin(user, parsed, { ...readLabels(callArguments), ...defined({ traceparent }) });
      if (isApiError(created) || !isGone()) return created;
      await store.remove(created.id);
      return clientGone;
    });
    runner.wake();
    return job;
  }

  return {
    readRequest,
    create,
    /**
     * Creates the request of a slot, whose rights the caller has checked; undefined if it exceeds a limit now. If it
     * does not, `reserve` returns its id, or undefined for the next one.
     */
    async createForSlot(
      user: User,
      request: ExportSpec,
      labels: Pick<NewReport, 'name' | 'deliverTo'> & { readonly slot: ReportSlot },
      reserve?: () => Promise<number | undefined>,
    ): Promise<ReportJob | undefined> {
      const job = await creates.run(() => createWithin(user, request, labels, reserve));
      runner.wake();
      return isApiError(job) ? undefined : job;
    },
    /** Finds a request; undefined if the id is malformed, unknown, foreign or expired. */
    async find(user: User, id: string | undefined): Promise<ReportJob | undefined> {
      const number = parseId(id);
      const job = number === undefined ? undefined : await store.find(number);
      return job === undefined || job.idAccount !== user.idAccount || isExpired(job, clock.nowMs()) ? undefined : job;
    },
    ...createRequestLists({ store, clock, loaded }, options.loadWaitMs),
    /** Cancels a request; undefined if it has ended. */
    cancel: (job: ReportJob): Promise<ReportJob | undefined> => runner.cancel(job.id),
    progress: (job: ReportJob): Promise<number> => runner.progress(job.id),
  };
}

/** Maximum wait of a list after a start, ms. */
const defaultLoadWaitMs = 5000;

const newestFirst = (jobs: readonly ReportJob[]): readonly ReportJob[] => jobs.toSorted((a, b) => b.id - a.id);

/** Creates the lists of a user's requests; they are refused while those of earlier processes are being read. */
function createRequestLists(
  { store, clock, loaded }: Pick<ExportsDependencies, 'store' | 'clock' | 'loaded'>,
  loadWaitMs = defaultLoadWaitMs,
) {
  async function isHistoryRead(): Promise<boolean> {
    const settled = new AbortController();
    const late = pause(loadWaitMs, settled.signal).then(() => false);
    return await Promise.race([loaded.then(() => true), late]).finally(() => settled.abort());
  }

  function isOwn(job: ReportJob, { idUser, idAccount }: User): boolean {
    return job.idUser === idUser && job.idAccount === idAccount && !isExpired(job, clock.nowMs());
  }

  return {
    async list(user: User): Promise<readonly ReportJob[] | ExportApiError> {
      if (!(await isHistoryRead())) return unavailable;
      await store.refresh((job) => isOwn(job, user));
      return newestFirst(await store.select((job) => isOwn(job, user)));
    },
    /** Lists at most `limit` wanted requests with ids below `before`, newest first, and counts all that are wanted. */
    async page(user: User, limit: number, before: number, isWanted: (job: ReportJob) => boolean) {
      if (!(await isHistoryRead())) return unavailable;
      await store.refresh((job) => isOwn(job, user));
      const own = store.list().filter((job) => isOwn(job, user) && isWanted(job));
      const older = newestFirst(own.filter(({ id }) => id < before));
      const wanted = new Set(older.slice(0, limit).map(({ id }) => id));
      // Only what is sent must be durable.
      const jobs = newestFirst(await store.select(({ id }) => wanted.has(id)));
      return { jobs, total: own.length, hasMore: older.length > limit };
    },
  };
}
