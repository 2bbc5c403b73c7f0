import type { User } from '../../access/access.ts';
import { isExpired, type ReportJob } from '../../reports/reports.ts';
import type { ReportStore } from '../../reports/store.ts';
import { pause } from '../../runtime/async/retry.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Refusal } from './envelope.ts';

/** A piece of a list, newest first. */
export interface RequestPage {
  readonly jobs: readonly ReportJob[];
  /** Requests of the whole list. */
  readonly total: number;
  /** There are older ones than these. */
  readonly hasMore: boolean;
}

/** The requests of a user. Both are refused for now while those of earlier processes are still being read. */
export interface RequestLists {
  /** The user's own requests, newest first. */
  list(user: User): Promise<readonly ReportJob[] | Refusal>;
  /** Those with ids below `before`, at most `limit`, and how many there are in all. */
  page(user: User, limit: number, before: number): Promise<RequestPage | Refusal>;
}

export interface RequestListDependencies {
  readonly store: ReportStore;
  readonly clock: Clock;
  /** Settles when the requests of earlier processes have been read. */
  readonly loaded: Promise<void>;
}

/** How long a list waits, after a start, for the requests of earlier processes to be read. */
const defaultLoadWaitMs = 5000;
const retryLater: Refusal = { code: 500, retryAfterSeconds: 5 };

const newestFirst = (jobs: readonly ReportJob[]): readonly ReportJob[] => jobs.toSorted((a, b) => b.id - a.id);

/** Creates the lists over a store. */
export function createRequestLists(
  { store, clock, loaded }: RequestListDependencies,
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
