import { startPollLoop } from '../async/poll-loop.ts';
import type { MonotonicClock } from '../clock.ts';
import { AppError, describeError, isAppError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import type { ObjectStore, StoredObject, Tag } from './object-store.ts';

/** Poll interval, ms. A change must apply within a second, and a large object takes time to read. */
const pollMs = { local: 250, shared: 600 } as const;
/** Polls of a shared store of which one reads all objects, if the first object leads. Each read is a paid request. */
const pollsOfAll = 10;

/** The last value read from objects that other processes replace. */
export interface Watched<T> {
  current(): T;
  /** Returns why the newest read failed; undefined if it succeeded. */
  problem(): string | undefined;
  /** Returns the time since the objects were last known to be as read, ms. */
  staleMs(): number;
  close(): void;
}

type Tags = readonly (Tag | undefined)[];

/** Reports whether objects still have their tags. */
async function areSame(store: ObjectStore, keys: readonly string[], tags: Tags): Promise<boolean> {
  const same = keys.map(async (key, index) => {
    const tag = tags[index];
    if (tag === undefined) return (await store.get(key)) === undefined;
    return (await store.getIfChanged(key, tag)) === 'unchanged';
  });
  return (await Promise.all(same)).every(Boolean);
}

/**
 * Reads objects with `load`, in the order of their keys, and again when one changes. If the first read fails, the value
 * is undefined until one succeeds. Later failures are logged once and retried, and the last valid value stays current.
 * The last object counts as damaged once it disappears. `isLedByFirst`: a change of the others is followed by one of the
 * first. Error: `folder_lost` of the first read.
 */
export async function watchObjects<T>(
  store: ObjectStore,
  keys: readonly string[],
  load: (objects: readonly (StoredObject | undefined)[]) => T,
  logger: Logger,
  onChange: () => void = () => undefined,
  isLedByFirst = false,
): Promise<Watched<T | undefined>> {
  const file = store.nameOf(keys.at(-1) ?? '');
  let value: T | undefined;
  let problem: string | undefined;
  let knownMs = -Infinity;
  let polls = 0;
  /** Tags of the last good read, and of the last failed one. */
  let [good, failed]: [Tags | undefined, Tags | undefined] = [undefined, undefined];

  async function isAt(tags: Tags | undefined): Promise<boolean> {
    if (tags === undefined) return false;
    polls += 1;
    const readsFirst = isLedByFirst && store.isShared && polls % pollsOfAll > 0;
    return await areSame(store, readsFirst ? keys.slice(0, 1) : keys, tags);
  }

  async function read(isFirst: boolean): Promise<void> {
    const objects: (StoredObject | undefined)[] = [];
    for (const key of keys) objects.push(await store.get(key));
    const tags = objects.map((object) => object?.tag);
    failed = tags;
    if (!isFirst && objects.at(-1) === undefined)
      throw new AppError('record_damaged', `${file} is missing`, { hint: 'Restore it from a backup.' });
    value = load(objects);
    [good, failed, problem] = [tags, undefined, undefined];
    knownMs = performance.now();
  }

  async function check(signal: AbortSignal): Promise<void> {
    if (await isAt(good)) {
      const wasUnreadable = problem !== undefined;
      [failed, problem] = [undefined, undefined];
      knownMs = performance.now();
      if (wasUnreadable) onChange();
    } else if (!(await isAt(failed)) && !signal.aborted) {
      await read(false);
      if (!signal.aborted) onChange();
    }
  }

  function report(error: unknown): void {
    const reported = problem;
    problem = describeError(error);
    if (problem !== reported)
      logger.error({ file, error: problem }, 'cannot read file, keeping the last valid content');
  }

  await read(true).catch((error: unknown) => {
    if (isAppError(error, 'folder_lost')) throw error;
    problem = describeError(error);
    logger.error({ file, error: problem }, 'cannot read file, will retry when it changes');
  });
  const everyMs = store.isShared ? pollMs.shared : pollMs.local;
  const loop = startPollLoop(check, { everyMs, onError: report, pausesFirst: true });
  const endHints = store.onHint(keys, () => loop.wake());
  return {
    current: () => value,
    problem: () => problem,
    staleMs: () => performance.now() - knownMs,
    close() {
      endHints();
      void loop.stop();
    },
  };
}

/** The last write to an object that another process keeps rewriting, as far as this process has observed it. */
export interface ObservedWrite {
  /** Time since the first read of its present state, ms. */
  readonly unchangedMs: number;
  /** Time since the read before its last change, ms: it was written within this time. Infinity if not known. */
  readonly writtenWithinMs: number;
}

interface Reads {
  readonly tag: string;
  /** Time of the last read before that of this tag. */
  readonly beforeMs: number;
  readonly firstMs: number;
  readonly lastMs: number;
}

/** Observes objects by their tags, or by another text that each write changes. Wall clocks are not compared. */
export function createWriteObserver(clock: MonotonicClock) {
  const seen = new Map<string, Reads>();
  return {
    /** Records that a read has returned this tag. */
    observe(key: string, tag: string): ObservedWrite {
      const nowMs = clock.nowMs();
      const before = seen.get(key);
      const { beforeMs, firstMs } =
        before?.tag === tag ? before : { beforeMs: before?.lastMs ?? -Infinity, firstMs: nowMs };
      seen.set(key, { tag, beforeMs, firstMs, lastMs: nowMs });
      return { unchangedMs: nowMs - firstMs, writtenWithinMs: nowMs - beforeMs };
    },
    /** Forgets all other objects. */
    retain(keys: readonly string[]): void {
      const kept = new Set(keys);
      for (const key of seen.keys()) if (!kept.has(key)) seen.delete(key);
    },
  };
}

/** Reports whether a writer is alive that writes more often than `silentMs`. Undefined: not known yet. */
export function isWriterAlive({ unchangedMs, writtenWithinMs }: ObservedWrite, silentMs: number): boolean | undefined {
  if (unchangedMs >= silentMs) return false;
  return writtenWithinMs < silentMs ? true : undefined;
}
