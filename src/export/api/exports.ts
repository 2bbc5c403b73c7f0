/**
 * The export area: what a user may ask, and what is answered.
 *
 * In: calls over HTTP, authorized (access/authorization.ts) and within their quota (throttle.ts). Out: a request in the
 * report store, its state, its links; a refusal is a value (envelope.ts) and becomes an answer in server.ts.
 * Invariant: a create is answered with 200 after its request is durable; the limit of simultaneous requests holds
 * however many come at once; a request of another account does not exist.
 * Crash: nothing rests here; a request that was stored and not yet answered runs, and expires.
 */
import type { User } from '../../access/access.ts';
import { defaultFormat, getFormat } from '../../datasets/file-formats.ts';
import { isExpired, type ReportJob, type ReportSlot } from '../../reports/reports.ts';
import type { ReportStore } from '../../reports/store.ts';
import { createMutex } from '../../runtime/async/semaphore.ts';
import { pause } from '../../runtime/async/retry.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { ExportSpec } from '../jobs/export-spec.ts';
import type { JobRunner } from '../jobs/scheduler.ts';
import type { Arguments } from './arguments.ts';
import { badRequest, isRefusal, type Refusal } from './envelope.ts';
import type { ParseRequest } from './request-rules.ts';

/**
 * What a user can do with export requests. A request belongs to the user's account: to every other account it does not
 * exist.
 */
export interface Exports extends RequestLists {
  /** What a create with these arguments would ask for, or why it would be refused. */
  readRequest(user: User, given: Arguments): Promise<ExportSpec | Refusal>;
  /**
   * Creates a request. A client that has gone (`isGone`) before it can be answered gets none: nobody would know its id,
   * and it would count towards the limit. One that goes later finds it in the list.
   */
  create(user: User, given: Arguments, isGone: () => boolean): Promise<ReportJob | Refusal>;
  /**
   * Creates the request of a schedule's slot, parsed before; undefined where there is no room for it now. The caller
   * knows that the slot has none, and that the user may order it.
   */
  createForSlot(user: User, request: ExportSpec, slot: ReportSlot): Promise<ReportJob | undefined>;
  /**
   * The request of an id as the caller wrote it; undefined for an id that is malformed, unknown, foreign or expired.
   */
  find(user: User, id: string | undefined): Promise<ReportJob | undefined>;
  /** Cancels a request; undefined when it has ended already. */
  cancel(job: ReportJob): Promise<ReportJob | undefined>;
  progress(job: ReportJob): number;
}

interface ExportsDependencies {
  readonly store: ReportStore;
  readonly runner: JobRunner;
  readonly clock: Clock;
  readonly parseRequest: ParseRequest;
  /** Settles when the requests of earlier processes have been read. */
  readonly loaded: Promise<void>;
}

const gone: Refusal = { code: 400, detail: 'The client has gone' };

function refuseOver(jobs: readonly ReportJob[], limit: number): Refusal | undefined {
  if (jobs.length < limit) return undefined;
  const exports = jobs.map((job) => ({ idRawExport: String(job.id) }));
  return badRequest(`The maximum number of simultaneous requests is reached: ${limit}. Wait for room in the queue.`, {
    exports,
  });
}

/**
 * Of the requests that an account, or a user, may have at once, so many are never those of slots: what is made up after a
 * stop keeps nobody from ordering. Who may have one only shares it.
 */
const placesForCalls = 1;

/** As `refuseOver`, for a request of a slot. */
function refuseSlotOver(jobs: readonly ReportJob[], limit: number): Refusal | undefined {
  const ofSlots = jobs.filter(({ slot }) => slot !== undefined);
  return refuseOver(jobs, limit) ?? refuseOver(ofSlots, Math.max(limit - placesForCalls, 1));
}

/** A request that says nothing of its files' compression gets its user's default. */
function withUsersFiles(request: ExportSpec, { files }: User): ExportSpec {
  const isOpen = request.compression === undefined && getFormat(request.format ?? defaultFormat).kind === 'text';
  return files === 'gzip' && isOpen ? { ...request, compression: 'gzip' } : request;
}

/** Creates the rules of the export area over its stores. */
export function createExports(
  { store, runner, clock, parseRequest, loaded }: ExportsDependencies,
  options: { readonly maxExports: number; readonly loadWaitMs?: number },
): Exports {
  /** Creates run one after the other, those of all accounts, so that the limit holds however many come at once. */
  const creates = createMutex();

  function refuseOverLimit(user: User, slot: ReportSlot | undefined): Refusal | undefined {
    const refuse = slot === undefined ? refuseOver : refuseSlotOver;
    const ofAccount = store.inProgress().filter((job) => job.idAccount === user.idAccount);
    const ofUser = ofAccount.filter((job) => job.idUser === user.idUser);
    return (
      refuse(ofAccount, options.maxExports) ??
      (user.maxExports === undefined ? undefined : refuse(ofUser, user.maxExports))
    );
  }

  /** Makes a request durable where there is room for it. */
  async function createWithin(user: User, parsed: ExportSpec, slot?: ReportSlot): Promise<ReportJob | Refusal> {
    const refusal = refuseOverLimit(user, slot);
    if (refusal !== undefined) return refusal;
    const request = withUsersFiles(parsed, user);
    const { idUser, idAccount } = user;
    const { event } = request;
    return store.create({ idUser, idAccount, event, request, ...(slot === undefined ? {} : { slot }) });
  }

  /** What a user asks for, where the user may have it. */
  async function readRequest(user: User, given: Arguments): Promise<ExportSpec | Refusal> {
    if (!user.canExport) return badRequest('The account lacks export permissions');
    const parsed = await parseRequest(user.idAccount, given, clock.nowMs());
    return isRefusal(parsed) ? parsed : withUsersFiles(parsed, user);
  }

  async function createNow(user: User, given: Arguments, isGone: () => boolean): Promise<ReportJob | Refusal> {
    const parsed = await readRequest(user, given);
    if (isRefusal(parsed)) return parsed;
    const job = await creates.run(async () => {
      if (isGone()) return gone;
      const created = await createWithin(user, parsed);
      if (isRefusal(created) || !isGone()) return created;
      await store.remove(created.id);
      return gone;
    });
    runner.wake();
    return job;
  }

  return {
    readRequest,
    create: createNow,
    async createForSlot(user, request, slot) {
      const job = await creates.run(() => createWithin(user, request, slot));
      runner.wake();
      return isRefusal(job) ? undefined : job;
    },
    async find(user, id) {
      if (id === undefined || !/^[1-9]\d{0,14}$/.test(id)) return undefined;
      const job = await store.find(Number(id));
      return job === undefined || job.idAccount !== user.idAccount || isExpired(job, clock.nowMs()) ? undefined : job;
    },
    ...createRequestLists({ store, clock, loaded }, options.loadWaitMs),
    cancel: (job) => runner.cancel(job.id),
    progress: (job) => runner.progress(job.id),
  };
}

/** A piece of a list, newest first. */
interface RequestPage {
  readonly jobs: readonly ReportJob[];
  /** Requests of the whole list. */
  readonly total: number;
  /** There are older ones than these. */
  readonly hasMore: boolean;
}

/** The requests of a user. Both are refused for now while those of earlier processes are still being read. */
interface RequestLists {
  /** The user's own requests, newest first. */
  list(user: User): Promise<readonly ReportJob[] | Refusal>;
  /** Those with ids below `before`, at most `limit`, and how many there are in all. */
  page(user: User, limit: number, before: number): Promise<RequestPage | Refusal>;
}

/** How long a list waits, after a start, for the requests of earlier processes to be read. */
const defaultLoadWaitMs = 5000;
const retryLater: Refusal = { code: 500, retryAfterSeconds: 5 };

const newestFirst = (jobs: readonly ReportJob[]): readonly ReportJob[] => jobs.toSorted((a, b) => b.id - a.id);

/** Creates the lists over a store. */
function createRequestLists(
  { store, clock, loaded }: Pick<ExportsDependencies, 'store' | 'clock' | 'loaded'>,
  loadWaitMs = defaultLoadWaitMs,
): RequestLists {
  /** Waits a little for the requests of earlier processes. */
  async function isHistoryRead(): Promise<boolean> {
    const settled = new AbortController();
    const late = pause(loadWaitMs, settled.signal).then(() => false);
    return await Promise.race([loaded.then(() => true), late]).finally(() => settled.abort());
  }

  /** Says whether a request is the user's own, and its links have not ended. */
  function isOwn(job: ReportJob, { idUser, idAccount }: User): boolean {
    return job.idUser === idUser && job.idAccount === idAccount && !isExpired(job, clock.nowMs());
  }

  return {
    async list(user) {
      return (await isHistoryRead()) ? newestFirst(await store.select((job) => isOwn(job, user))) : retryLater;
    },
    async page(user, limit, before) {
      if (!(await isHistoryRead())) return retryLater;
      const own = store.list().filter((job) => isOwn(job, user));
      const older = newestFirst(own.filter(({ id }) => id < before));
      const wanted = new Set(older.slice(0, limit).map(({ id }) => id));
      // What is answered is durable; the others are not waited for.
      const jobs = newestFirst(await store.select(({ id }) => wanted.has(id)));
      return { jobs, total: own.length, hasMore: older.length > limit };
    },
  };
}
