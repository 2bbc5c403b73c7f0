import { createReadStream } from 'node:fs';
import { access, constants } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { createGunzip } from 'node:zlib';
import { AppError, describeError } from '../runtime/errors.ts';

/** One event to import: its JSON as it goes over the wire, and what the demo compares afterwards. */
export interface DemoEvent {
  readonly json: string;
  readonly name: string;
  /** Unix seconds; undefined when the service is to take the time of receipt. */
  readonly timestamp: number | undefined;
}

/** Takes the JSON of one body of `/v1/customEvent/`. Throws `usage` for text that is not a JSON object. */
export function parseDemoEvent(json: string): DemoEvent {
  const body = parseObject(json);
  if (body === undefined) throw new AppError('usage', `not a JSON object: ${json.slice(0, 80)}`);
  const timestamp = Number(body['eventTimestamp'] ?? Number.NaN);
  return { json, name: String(body['customEventName']), timestamp: Number.isFinite(timestamp) ? timestamp : undefined };
}

/** Reads the lines of a text file, gunzipped when its name ends in `.gz`. Breaking off the loop closes the file. */
export async function* readLines(file: string): AsyncGenerator<string, void, void> {
  const bytes = createReadStream(file);
  const text = file.endsWith('.gz') ? bytes.pipe(createGunzip()) : bytes;
  if (text !== bytes) bytes.once('error', (error) => text.destroy(error));
  try {
    yield* createInterface({ input: text, crlfDelay: Number.POSITIVE_INFINITY });
  } finally {
    bytes.destroy();
  }
}

/** Checks that a file of events can be read at all. Throws `not_found`. */
export async function checkReadable(file: string): Promise<void> {
  await access(file, constants.R_OK).catch((error: unknown) => {
    throw new AppError('not_found', `cannot read the events: ${describeError(error)}`);
  });
}

/** Reads a file of events, one body a line. Empty lines are passed over. Errors: `usage`, naming the line. */
export async function* readEventFile(file: string): AsyncGenerator<DemoEvent, void, void> {
  let number = 0;
  try {
    for await (const line of readLines(file)) {
      number += 1;
      if (line.trim() !== '') yield parseDemoEvent(line.trim());
    }
  } catch (error) {
    throw new AppError('usage', `${file}, line ${number}: ${describeError(error)}`, { cause: error });
  }
}

function parseObject(json: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}
