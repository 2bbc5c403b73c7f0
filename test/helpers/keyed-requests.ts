import { keyedEventIds } from '../../src/datasets/event-id.ts';
import { getMethod } from '../../src/datasets/dataset.ts';
import type { ImportMethod } from '../../src/datasets/field-schema.ts';
import { eventLine } from './lake.ts';

/** A request under an Idempotency-Key, as a test sends it; each event is identified by its name. */
export interface TestRequest {
  readonly key: string;
  readonly names: readonly string[];
  /** customEventBatch by default. */
  readonly method?: ImportMethod;
  /** Now by default. */
  readonly receivedMs?: number;
  /** The mask of the lake; none by default, as before version 0.4. */
  readonly mask?: number;
  /** Additional members of every line, such as one that no column accepts. */
  readonly members?: Readonly<Record<string, unknown>>;
}

/** Returns the ids that ingest assigns to the events of a request. */
export function idsOf({ key, names, method = 'customEventBatch', mask }: TestRequest): string[] {
  const ids = keyedEventIds({ idApp: 1, key, method, eventTexts: names, mask });
  return names.map((_, index) => ids(index));
}

/** Returns the lines of a request as ingest publishes them, in one message. */
export function linesOf(request: TestRequest): Record<string, unknown>[] {
  const { names, method = 'customEventBatch', receivedMs = Date.now(), members = {} } = request;
  const { kind } = getMethod(method);
  return idsOf(request).map((id, index) =>
    eventLine({ event_id: id, kind, received_at: receivedMs, custom_event_name: names[index], ...members }),
  );
}
