import { open } from 'node:fs/promises';

/** The dictionary of a column of texts in a row group: how many there are, and their bytes without those of their lengths. */
export interface TextDictionary {
  readonly values: number;
  readonly textBytes: number;
}

/** A page's header is some small numbers; with what it may have beside them it is far shorter. */
const headerBytes = 64;
/** The text's length stands before each. */
const lengthBytes = 4;
const dictionaryPage = 2;

/** What a struct of Thrift's compact protocol has: whole numbers and structs, by the numbers of their fields. */
type Struct = ReadonlyMap<number, number | Struct>;

/** Reads a struct that begins at a place. Errors: a `RangeError` where the bytes are none of a page's header. */
function readStruct(bytes: Buffer, start: number): { readonly fields: Struct; readonly end: number } {
  const fields = new Map<number, number | Struct>();
  let [at, id] = [start, 0];
  /** Whole numbers are zigzag, in groups of seven bits. */
  function readNumber(): number {
    let [value, scale, byte] = [0, 1, 0];
    do {
      byte = bytes.readUInt8(at);
      at += 1;
      value += (byte & 0x7f) * scale;
      scale *= 128;
    } while (byte > 0x7f);
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }
  for (;;) {
    const head = bytes.readUInt8(at);
    at += 1;
    if (head === 0) return { fields, end: at };
    const [step, type] = [head >> 4, head & 0xf];
    id = step === 0 ? readNumber() : id + step;
    // Of a truth value the type is all there is.
    if (type === 1 || type === 2) continue;
    if (type >= 4 && type <= 6) fields.set(id, readNumber());
    else if (type === 12) {
      const inner = readStruct(bytes, at);
      fields.set(id, inner.fields);
      at = inner.end;
    } else throw new RangeError(`a page's header has no field of type ${type}`);
  }
}

function parseHeader(bytes: Buffer): TextDictionary | undefined {
  const { fields } = readStruct(bytes, 0);
  const [type, pageBytes, dictionary] = [fields.get(1), fields.get(2), fields.get(7)];
  const values = dictionary instanceof Map ? (dictionary as Struct).get(1) : undefined;
  if (type !== dictionaryPage || typeof pageBytes !== 'number' || typeof values !== 'number') return undefined;
  const textBytes = pageBytes - lengthBytes * values;
  return values > 0 && textBytes >= 0 ? { values, textBytes } : undefined;
}

/**
 * Reads what the dictionary pages at some places of a Parquet file say of themselves, for columns of texts; undefined for
 * a page that is none. No page is read itself. Errors: those of the system.
 */
export async function readDictionaryHeaders(
  file: string,
  offsets: readonly number[],
): Promise<(TextDictionary | undefined)[]> {
  const handle = await open(file);
  try {
    const found: (TextDictionary | undefined)[] = [];
    for (const offset of offsets) {
      const { buffer } = await handle.read(Buffer.alloc(headerBytes), 0, headerBytes, offset);
      try {
        found.push(parseHeader(buffer));
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        found.push(undefined);
      }
    }
    return found;
  } finally {
    await handle.close();
  }
}
