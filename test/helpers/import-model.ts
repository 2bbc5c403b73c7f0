import { startPlace } from '../../src/client/event-source.ts';
import type { BatchAnswer, ImportArea, KeyAnswer, Later, ServiceFault } from '../../src/client/import-area.ts';
import type { ImportRecord } from '../../src/client/import-progress.ts';
import type { ImportState } from '../../src/client/import-state.ts';
import type { Random } from '../../src/demo/random.ts';

const keyMemoryMs = 24 * 3_600_000;

/** An import of nothing so far. */
export const emptyState: ImportState = {
  format: 2,
  identity: { idApp: 1, event: 'customEvent', format: 'ndjson', map: {}, sha256: '' },
  salt: '',
  service: [],
  startedAt: '',
  acknowledgedThrough: { batches: 0, place: startPlace, stored: 0, refused: 0, refusedBytes: 0 },
  sendLimit: 0,
  sinceMs: 0,
  apart: {},
  lastKeys: [],
};

/** The import area as docs/api.md promises it and no better: answers are lost, keys are forgotten after a day. */
export interface ModelService extends ImportArea {
  /** How often each event was stored, by its text. */
  readonly stored: ReadonlyMap<string, number>;
  /** Keys that came with other events than before. */
  readonly reusedKeys: readonly string[];
  /** Takes events from now on that it has refused. */
  loosen(): void;
}

/**
 * Everything that a run may meet, from a seed: its clock, the service and the file of its state. `isSteady`: what is
 * wrong with a request is said in the same way each time, as the service does until it is another version.
 */
export function createModel(random: Random, state: ImportState, isSteady = false) {
  const steady = new Map<string, readonly (number | undefined)[]>();
  const stored = new Map<string, number>();
  const keys = new Map<string, { readonly body: string; readonly atMs: number }>();
  const reusedKeys: string[] = [];
  let isStrict = true;
  let nowMs = 1_800_000_000_000;
  let leftSteps = Number.POSITIVE_INFINITY;
  let [atRest, refused] = [JSON.stringify(state), ''];

  /** Time passes, and a run that is to be killed ends here, and at each step behind. */
  function step(): void {
    nowMs += random.integer(0, 2000);
    leftSteps -= 1;
    if (leftSteps <= 0) throw new Error('killed');
  }

  /** An answer that says nothing, and now and then comes to a caller whose machine has slept for a day. */
  function later(why: string): Later & { readonly state: 'later' } {
    if (random.chance(0.05)) nowMs += 25 * 3_600_000;
    return { state: 'later', why, waitMs: 0 };
  }

  function judge(body: string): readonly ServiceFault[] {
    const events = JSON.parse(body) as readonly { readonly bad?: boolean }[];
    const faulty = events.flatMap(({ bad }, index) => (bad === true && isStrict ? [index] : []));
    // An answer has room for some faults, and may name no event at all; those to one request name the same.
    const named = steady.get(body) ?? (random.chance(0.1) ? [undefined] : faulty.slice(0, random.integer(1, 3)));
    if (isSteady) steady.set(body, named);
    return faulty.length === 0
      ? []
      : named.map((index) => ({ index, field: 'bad', reason: 'must not be', hint: undefined }));
  }

  function take(body: string, key: string): BatchAnswer {
    const faults = judge(body);
    if (faults.length > 0) return { state: 'refused', faults };
    const known = keys.get(key);
    if (known !== undefined && nowMs - known.atMs <= keyMemoryMs) {
      if (known.body !== body) reusedKeys.push(key);
      return { state: 'stored', unknownParameters: [] };
    }
    keys.set(key, { body, atMs: nowMs });
    for (const event of JSON.parse(body) as readonly object[]) {
      const text = JSON.stringify(event);
      stored.set(text, (stored.get(text) ?? 0) + 1);
    }
    return { state: 'stored', unknownParameters: [] };
  }

  const service: ModelService = {
    stored,
    reusedKeys,
    loosen: () => void (isStrict = false),
    async postBatch(_method, body, key) {
      step();
      if (random.chance(0.1)) return later('it is busy');
      const answer = take(body, key);
      step();
      return random.chance(0.1) ? later('the answer was lost') : answer;
    },
    async findKey(key): Promise<KeyAnswer | Later> {
      step();
      if (random.chance(0.2)) return later('it cannot be said now');
      const known = keys.get(key);
      return { isKnown: known !== undefined, isInLake: true, receivedAtMs: known?.atMs };
    },
    async checkBatch(_method, body) {
      step();
      if (random.chance(0.1)) return later('it is busy');
      const faults = judge(body);
      return faults.length > 0 ? { state: 'refused', faults } : { state: 'stored', unknownParameters: [] };
    },
    checkAccess: async () => undefined,
    identify: async () => ({ keys: [], atMs: nowMs }),
  };
  const record: ImportRecord = {
    async writeState(next) {
      step();
      atRest = JSON.stringify(next);
      step();
    },
    async writeRefused(lines, atByte) {
      step();
      refused = `${refused.slice(0, atByte)}${lines}`;
      step();
      return refused.length;
    },
  };
  return {
    service,
    record,
    nowMs: () => nowMs,
    state: () => JSON.parse(atRest) as ImportState,
    refusedLines: () =>
      refused
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => (JSON.parse(line) as { readonly line: number }).line),
    /** Lets time pass. */
    pass: (ms: number) => void (nowMs += ms),
    /** Lets the next run be killed after so many steps, a while after the one before. */
    dieAfter(steps: number, pauseMs: number): void {
      nowMs += pauseMs;
      leftSteps = steps;
    },
  };
}
