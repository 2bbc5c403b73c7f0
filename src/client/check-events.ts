import { cutBatches } from './batches.ts';
import { inputStart, type EventSource, type RejectedEvent, type SourceItem } from './event-source.ts';
import type { ImportArea, RetryUntilAnswered } from './import-area.ts';
import { sendBatch } from './send-batch.ts';
import { AppError } from '../runtime/errors.ts';

/**
 * The check of events before an import: the service validates them and stores nothing.
 */

/** Items of a new import that are checked. */
export const checkedItems = 1000;
/** Longest wait for the first lines of standard input, ms: a pipe may deliver one line per hour. */
const headWaitMs = 2000;
const shownLines = 5;
const shownProblems = 10;

/** Rejected events that have the same field and reason. */
interface EventProblem {
  readonly field?: string;
  readonly reason: string;
  readonly hint?: string;
  readonly count: number;
  /** The first of them. */
  readonly lines: readonly number[];
}

export interface EventCheck {
  readonly valid: number;
  readonly refused: number;
  /** The most frequent first. */
  readonly problems: readonly EventProblem[];
}

interface CheckDependencies {
  readonly area: ImportArea;
  readonly method: string;
  readonly parallel: number;
  readonly nowMs: () => number;
  readonly retryUntilAnswered: RetryUntilAnswered;
}

/** Limits a source to its first items. */
export function firstItems(source: EventSource, limit: number): EventSource {
  return {
    async *items(from) {
      let count = 0;
      for await (const item of source.items(from)) {
        yield item;
        count += 1;
        if (count >= limit) return;
      }
    },
  };
}

function countProblems(rejected: readonly RejectedEvent[]): EventProblem[] {
  const problems = new Map<string, { field?: string; reason: string; hint?: string; count: number; lines: number[] }>();
  for (const { line, field, reason, hint } of rejected.toSorted((a, b) => a.line - b.line)) {
    const key = JSON.stringify([field, reason]);
    const known = problems.get(key);
    const problem = known ?? {
      ...(field === undefined ? {} : { field }),
      reason,
      ...(hint === undefined ? {} : { hint }),
      count: 0,
      lines: [],
    };
    problem.count += 1;
    if (problem.lines.length < shownLines) problem.lines.push(line);
    if (known === undefined) problems.set(key, problem);
  }
  return [...problems.values()].toSorted((a, b) => b.count - a.count);
}

/** Validates all events of a source. Undefined if aborted. Errors: `service_refused`, `service_away`; of the source. */
export async function checkEvents(source: EventSource, check: CheckDependencies): Promise<EventCheck | undefined> {
  const { area, parallel } = check;
  const batches = cutBatches(source, { number: 0, place: inputStart });
  const dependencies = {
    ...check,
    // The import's own way of splitting rejected batches.
    area: { ...area, postBatch: (method: string, body: string) => area.checkBatch(method, body) },
    seed: '',
    onUnknown: () => undefined,
    onKey: () => undefined,
  };
  const rejected: RejectedEvent[] = [];
  let [valid, isAborted] = [0, false];
  const work = async (): Promise<void> => {
    for (let next = await batches.next(); next.done !== true && !isAborted; next = await batches.next()) {
      const { events, rejected: before } = next.value;
      const sending = { events, sentAlone: new Set<number>(), sinceMs: check.nowMs(), isInDoubt: false };
      const outcome = await sendBatch(dependencies, sending, async () => undefined);
      if (outcome === undefined) isAborted = true;
      else {
        valid += outcome.stored;
        rejected.push(...before, ...outcome.rejected);
      }
    }
  };
  try {
    const results = await Promise.allSettled(Array.from({ length: parallel }, work));
    const failed = results.find((result) => result.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  } finally {
    await batches.return();
  }
  return isAborted ? undefined : { valid, refused: rejected.length, problems: countProblems(rejected) };
}

/** Renders the problems of a check, one per line. */
export function renderProblems({ problems }: EventCheck): readonly string[] {
  const lines = problems.slice(0, shownProblems).map(({ field, reason, hint, count, lines: first }) => {
    const more = count > first.length ? ', ...' : '';
    const what = field === undefined ? `the event ${reason}` : `${field} ${reason}`;
    return `${what}${hint === undefined ? '' : ` (${hint})`}: ${count} ${count === 1 ? 'event' : 'events'}, line ${first.join(', ')}${more}`;
  });
  return problems.length > shownProblems ? [...lines, `${problems.length - shownProblems} other problems`] : lines;
}

/** Rejects an import whose checked events are all invalid. Error: `usage`. */
export function assertSomeValid(name: string, check: EventCheck): void {
  if (check.valid > 0 || check.refused === 0) return;
  throw new AppError(
    'usage',
    `none of the first ${check.refused} events of ${name} is valid: ${renderProblems(check).join('; ')}`,
    {
      hint: 'Pass --map, --time-format or --event for the form of the file. --force imports it nevertheless. No event was sent.',
    },
  );
}

/** Reads the first items of an input that can be read once. `whole` has them again, followed by all others. */
export async function readHead(
  source: EventSource,
): Promise<{ readonly head: EventSource; readonly whole: EventSource }> {
  const items = source.items(inputStart);
  const first: SourceItem[] = [];
  let pending = items.next();
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), headWaitMs);
  });
  try {
    while (first.length < checkedItems) {
      const next = await Promise.race([pending, timeout]);
      if (next === undefined || next.done === true) break;
      first.push(next.value);
      pending = items.next();
    }
  } finally {
    clearTimeout(timer);
  }
  return {
    head: {
      items: async function* head() {
        yield* first;
      },
    },
    whole: {
      async *items() {
        try {
          yield* first;
          for (let next = await pending; next.done !== true; next = await items.next()) yield next.value;
        } finally {
          await items.return();
        }
      },
    },
  };
}
