import { createHash } from 'node:crypto';
import { AppError, isDamage, type ErrorCode } from '../errors.ts';
import { parseChecksummed, renderChecksummed } from '../files/checksummed-json.ts';
import type { Logger } from '../logger.ts';
import type { ObjectStore, StoredObject } from './object-store.ts';
import { watchObjects, type Watched } from './watch.ts';

/** A kind of record: its documents, and the hint for a damaged one. */
export interface RecordKind<T> {
  readonly isValid: (document: unknown) => document is T;
  /** Returns the id in a record, if it has one: it must be that of its key. */
  readonly idOf?: (record: T) => string;
  readonly damaged: { readonly code: ErrorCode; readonly hint: string; readonly what?: string };
  /** `jsonCodec` by default. */
  readonly codec?: Codec<T>;
  /** Suffix of the keys; `.json` by default. */
  readonly ending?: string;
  /** Form of valid ids. */
  readonly idForm?: RegExp;
}

/** A text format. `parse` throws, or returns what is not valid, for any other text. */
export interface Codec<T> {
  parse(text: string): unknown;
  render(record: T): string;
}

/** Small documents of one kind: typed, checksummed, changed atomically. Error: that of the kind if damaged. */
export interface Records<T> {
  get(id: string): Promise<T | undefined>;
  getSound(id: string): Promise<T | undefined>;
  parse(id: string, object: StoredObject): T;
  create(id: string, record: T): Promise<'created' | 'exists'>;
  put(id: string, record: T): Promise<void>;
  /**
   * Changes a record by compare-and-swap and returns the result; `to` runs again after a conflict. It gets undefined
   * without a record, and returns undefined or its argument to change nothing.
   */
  change(id: string, to: (record: T | undefined) => T | undefined): Promise<T | undefined>;
  /** Removes a record, damaged or not. Returns whether there was one. */
  remove(id: string): Promise<boolean>;
  /** Lists the ids that begin with a prefix, which is empty or ends with `/`, in no order. */
  ids(prefix?: string): Promise<readonly string[]>;
  /** Reads the records whose ids begin with a prefix, and lists the damaged ones. */
  list(prefix?: string): Promise<{ readonly known: readonly T[]; readonly damaged: readonly string[] }>;
  /** Watches a record. `load` converts it, and may throw; it gets undefined if there is none at first. */
  watch<V>(
    id: string,
    load: (record: T | undefined) => V,
    logger: Logger,
    onChange?: () => void,
  ): Promise<Watched<V | undefined>>;
  nameOf(id: string): string;
}

const checksum = (text: string): string => createHash('sha256').update(text).digest('hex');

/** A number with its checksum; version 0.1.0 wrote none. */
export const numberCodec: Codec<{ readonly number: number }> = {
  parse(text) {
    const [, digits, sha256] = /^(\d{1,15})(?: ([0-9a-f]{64}))?\n$/.exec(text) ?? [];
    const isWhole = digits !== undefined && (sha256 === undefined || sha256 === checksum(digits));
    return isWhole ? { number: Number(digits) } : undefined;
  },
  render: ({ number }) => `${number} ${checksum(String(number))}\n`,
};

/** JSON with a checksum (checksummed-json.ts). */
export const jsonCodec: Codec<object> = {
  parse(text) {
    const { version, ...document } = parseChecksummed(text);
    return version === undefined || version === 1 || version === 2 ? document : undefined;
  },
  render: (record) => renderChecksummed({ ...record }),
};

function createDocuments<T extends object>(store: ObjectStore, kind: RecordKind<T>) {
  const { codec = jsonCodec, ending = '.json', idForm = /./, damaged } = kind;
  const keyOf = (id: string): string => `${id}${ending}`;
  /** Callers may pass any text of a client: an id names a record below the folder of the kind. */
  const isId = (id: string): boolean => idForm.test(id) && !id.split('/').includes('..');

  function parse(id: string, { bytes }: StoredObject): T {
    let cause: unknown;
    try {
      const document = codec.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8'));
      if (kind.isValid(document) && (kind.idOf === undefined || kind.idOf(document) === id)) return document;
    } catch (error) {
      cause = error;
    }
    const what = damaged.what === undefined ? 'is damaged' : `does not hold ${damaged.what}`;
    throw new AppError(damaged.code, `${store.nameOf(keyOf(id))} ${what}`, { cause, hint: damaged.hint });
  }

  async function tryChange(id: string, to: (record: T | undefined) => T | undefined): Promise<T | undefined | 'again'> {
    if (!isId(id)) return undefined;
    const found = await store.get(keyOf(id));
    const before = found === undefined ? undefined : parse(id, found);
    const after = to(before);
    if (after === undefined || after === before) return before;
    const bytes = Buffer.from(codec.render(after));
    const result =
      found === undefined ? await store.create(keyOf(id), bytes) : await store.replace(keyOf(id), bytes, found.tag);
    return result === 'exists' || result === 'conflict' ? 'again' : after;
  }

  async function get(id: string): Promise<T | undefined> {
    const found = isId(id) ? await store.get(keyOf(id)) : undefined;
    return found === undefined ? undefined : parse(id, found);
  }

  async function ids(prefix = ''): Promise<readonly string[]> {
    const keys = await store.list(prefix);
    const all = keys.filter((key) => key.endsWith(ending)).map((key) => key.slice(0, -ending.length));
    return all.filter((id) => idForm.test(id));
  }

  const render = (record: T): Buffer => Buffer.from(codec.render(record));
  return { keyOf, isId, parse, tryChange, render, get, ids };
}

export function createRecords<T extends object>(store: ObjectStore, kind: RecordKind<T>): Records<T> {
  const { keyOf, isId, parse, tryChange, render, get, ids } = createDocuments(store, kind);
  return {
    get,
    parse,
    async getSound(id) {
      try {
        return await get(id);
      } catch (error) {
        if (!isDamage(error)) throw error;
        return undefined;
      }
    },
    create: (id, record) => store.create(keyOf(id), render(record)),
    async put(id, record) {
      await store.replace(keyOf(id), render(record), 'any');
    },
    async change(id, to) {
      const first = await tryChange(id, to);
      if (first !== 'again') return first;
      // Under contention, the changes run in the order of their calls.
      return await store.hold('', async () => {
        for (;;) {
          const result = await tryChange(id, to);
          if (result !== 'again') return result;
        }
      });
    },
    async remove(id) {
      if (!isId(id)) return false;
      const found = await store.get(keyOf(id));
      await store.remove([keyOf(id)]);
      return found !== undefined;
    },
    ids,
    async list(prefix) {
      const known: T[] = [];
      const damagedIds: string[] = [];
      for (const id of await ids(prefix)) {
        try {
          const record = await get(id);
          if (record !== undefined) known.push(record);
        } catch (error) {
          if (!isDamage(error)) throw error;
          damagedIds.push(id);
        }
      }
      return { known, damaged: damagedIds };
    },
    watch: (id, load, logger, onChange) =>
      watchObjects(
        store,
        [keyOf(id)],
        ([found]) => load(found === undefined ? undefined : parse(id, found)),
        logger,
        onChange,
      ),
    nameOf: (id) => store.nameOf(keyOf(id)),
  };
}
