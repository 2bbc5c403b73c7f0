import { lookup as resolveHost, type LookupAddress } from 'node:dns';
import { once } from 'node:events';
import { createKeyedMutex } from '../async/mutex.ts';

/**
 * Looks names up for those who have named them. The system does two look-ups at a time for the whole process, and one of
 * a name whose name server says nothing takes it some ten seconds, whether anybody still waits for it or not. So an owner
 * has one under way at a time, and each of its names once.
 */
export interface NameLookups {
  /** The addresses of a name. Rejects when the system does, and when the signal aborts. */
  find(host: string, owner: string, signal: AbortSignal): Promise<readonly LookupAddress[]>;
}

function resolve(host: string): Promise<readonly LookupAddress[]> {
  return new Promise((done, fail) => {
    resolveHost(host, { all: true }, (error, addresses) => (error === null ? done(addresses) : fail(error)));
  });
}

/** Settles as the work does, or rejects with the signal's reason where that aborts first. */
async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const settled = new AbortController();
  const aborted = once(signal, 'abort', { signal: settled.signal }).then(() => signal.throwIfAborted());
  // Nobody may wait for them any more when they fail.
  for (const one of [work, aborted]) one.catch(() => undefined);
  try {
    signal.throwIfAborted();
    await Promise.race([work, aborted]);
    return await work;
  } finally {
    settled.abort();
  }
}

/** Creates it; nothing is looked up yet. */
export function createNameLookups(): NameLookups {
  const turns = createKeyedMutex();
  /** Those under way, or waiting for their turn, by owner and name. */
  const pending = new Map<string, Promise<readonly LookupAddress[]>>();
  return {
    async find(host, owner, signal) {
      const key = `${owner} ${host}`;
      const known = pending.get(key);
      const found = known ?? turns.run(owner, () => resolve(host)).finally(() => pending.delete(key));
      if (known === undefined) pending.set(key, found);
      return await untilAborted(found, signal);
    },
  };
}
