import { cutBatches, renderBody } from './batches.ts';
import type { EventSource, SourceEvent } from './event-source.ts';
import type { ImportArea, KeyAnswer } from './import-area.ts';
import type { Insist } from './insist.ts';
import type { Place } from './records.ts';
import { keyOf, part, type Judged } from './send-batch.ts';

/** Where an import may have left events that the state at hand knows nothing of. */
export interface EarlierQuestion {
  readonly source: EventSource;
  readonly area: ImportArea;
  readonly insist: Insist;
  /** The method for a batch. */
  readonly method: string;
  readonly seed: string;
  /** The end of a batch, to read from. */
  readonly from: { readonly number: number; readonly place: Place };
  /** The first batch that by the state nobody has sent. */
  readonly first: number;
}

/** What the service says of a batch. `refused`: of each of its events, so that it says nothing of the import. */
type Known = KeyAnswer | 'refused';

/**
 * Asks whether a batch was stored. One refused event makes the others go under another key, so what would be refused is
 * left out as `sendBatch` does. Undefined when the signal ended it.
 */
async function askFor(events: readonly SourceEvent[], question: EarlierQuestion): Promise<Known | undefined> {
  const { area, insist, method, seed } = question;
  const [first] = events;
  if (first === undefined) return 'refused';
  const body = renderBody(events);
  const found = await insist<KeyAnswer>(async () => {
    const answer = await area.findKey(keyOf(seed, first.line, body));
    if (!('why' in answer)) return answer;
    return {
      ...answer,
      why: `the service cannot say whether it has this file already (--again does not ask): ${answer.why}`,
    };
  });
  if (found === undefined || found.isKnown) return found;
  const judged = await insist<Judged>(async () => {
    const answer = await area.checkBatch(method, body);
    return answer.state === 'later' ? { why: answer.why, waitMs: answer.waitMs } : answer;
  });
  if (judged?.state !== 'refused') return judged === undefined ? undefined : found;
  if (events.length === 1) return 'refused';
  const { alone, rest } = part(events, judged.faults);
  for (const event of alone) {
    const answer = await askFor([event], question);
    if (answer !== 'refused') return answer;
  }
  return askFor(rest, question);
}

/**
 * Asks whether the service has what nobody has sent by the state of an import: the state of an earlier one is gone, or a
 * copy of the file and its state went on elsewhere. Batches are sent in their order, so the first one tells. Returns
 * since when, by the service's clock; undefined: it has not, or the signal ended the question. Errors: those of `insist`.
 */
export async function findEarlier(question: EarlierQuestion): Promise<number | undefined> {
  for await (const { number, events } of cutBatches(question.source, question.from)) {
    if (number < question.first || events.length === 0) continue;
    const answer = await askFor(events, question);
    if (answer !== 'refused') return answer?.isKnown === true ? (answer.receivedAtMs ?? 0) : undefined;
  }
  return undefined;
}
