/**
 * Records with an id and an account, packed into a few buffers: they go from one thread to another without a copy and
 * without work for the one that gets them, and a record becomes an object when it is first asked for.
 */
export interface PackedRecords {
  /** Ids of the records, ascending, each once. */
  readonly ids: Float64Array<ArrayBuffer>;
  /** The account of each. */
  readonly accounts: Float64Array<ArrayBuffer>;
  /** Where the JSON of each begins in `bytes`, and at last where it ends. */
  readonly starts: Float64Array<ArrayBuffer>;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Packed records, opened for reading. */
export interface OpenRecords<T> {
  find(id: number): T | undefined;
  /** The records of an account, by id. */
  ofAccount(idAccount: number): readonly T[];
}

/** The buffers of packed records, to hand them over to another thread. */
export function buffersOf({ ids, accounts, starts, bytes }: PackedRecords): ArrayBuffer[] {
  return [ids.buffer, accounts.buffer, starts.buffer, bytes.buffer];
}

/** Packs records. Of several with the same id the last one counts. Linear but for one sort of the ids. */
export function packRecords<T extends { readonly idAccount: number }>(
  records: readonly T[],
  idOf: (record: T) => number,
): PackedRecords {
  const byId = new Map(records.map((record) => [idOf(record), record]));
  const sorted = [...byId].toSorted(([a], [b]) => a - b);
  const texts = sorted.map(([, record]) => Buffer.from(JSON.stringify(record)));
  const starts = new Float64Array(texts.length + 1);
  for (const [index, text] of texts.entries()) starts[index + 1] = (starts[index] ?? 0) + text.length;
  const bytes = new Uint8Array(starts.at(-1) ?? 0);
  for (const [index, text] of texts.entries()) bytes.set(text, starts[index]);
  return {
    ids: Float64Array.from(sorted, ([id]) => id),
    accounts: Float64Array.from(sorted, ([, record]) => record.idAccount),
    starts,
    bytes,
  };
}

/** Place of an id in an ascending list; undefined when it is not in it. */
function findPlace(ids: Float64Array, id: number): number | undefined {
  let [low, high] = [0, ids.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((ids[middle] ?? Infinity) < id) low = middle + 1;
    else high = middle;
  }
  return ids[low] === id ? low : undefined;
}

/** Opens packed records; `open` makes of the JSON of one what is handed out, once for each that is asked for. */
export function openRecords<T>(
  { ids, accounts, starts, bytes }: PackedRecords,
  open: (json: string) => T,
): OpenRecords<T> {
  const opened = new Map<number, T>();
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);

  function at(place: number): T {
    const known = opened.get(place);
    if (known !== undefined) return known;
    const record = open(text.toString('utf8', starts[place], starts[place + 1]));
    opened.set(place, record);
    return record;
  }

  return {
    find(id) {
      const place = findPlace(ids, id);
      return place === undefined ? undefined : at(place);
    },
    ofAccount(idAccount) {
      const found: T[] = [];
      accounts.forEach((account, place) => {
        if (account === idAccount) found.push(at(place));
      });
      return found;
    },
  };
}
