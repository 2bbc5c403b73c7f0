import { createHash } from 'node:crypto';
import { setImmediate as settled } from 'node:timers/promises';
import type { MonotonicClock } from '../../src/runtime/clock.ts';
import { AppError } from '../../src/runtime/errors.ts';
import { createFolderStore } from '../../src/runtime/store/folder-store.ts';
import type { ObjectStore, StoredObject, Tag } from '../../src/runtime/store/object-store.ts';
import { createRandom } from './export-events.ts';

/** A process with its own clock, and the common store behind its own network. */
export interface SimulatedProcess {
  readonly clock: MonotonicClock;
  readonly store: ObjectStore;
  readonly network: SimulatedNetwork;
  /** Stops the process as SIGSTOP does, ms. Its requests arrive, and it observes nothing before it resumes. */
  stopFor(ms: number): void;
  kill(): void;
  canRun(): boolean;
}

/** Faults of the requests of a process. */
export interface SimulatedNetwork {
  /** Longest delay in each direction, ms. */
  delayMs: number;
  /** Requests of a hundred without a response, half of which the store still executes, some of them late. */
  lost: number;
  /** Time after which a request without a response fails, ms. */
  timeoutMs: number;
}

interface Step {
  readonly atMs: number;
  readonly order: number;
  readonly owner: Owner | undefined;
  readonly run: () => void;
}

interface Owner {
  readonly network: SimulatedNetwork;
  isKilled: boolean;
  resumesAtMs: number;
}

const tagOf = (bytes: Uint8Array): Tag => `#${createHash('md5').update(bytes).digest('hex')}`;

/** Creates processes with one store in simulated time. A seed repeats each step; nothing waits for a timer. */
export function createSimulation(seed: number) {
  const random = createRandom(seed);
  const objects = new Map<string, StoredObject>();
  let steps: Step[] = [];
  let [nowMs, order] = [0, 0];

  function schedule(owner: Owner | undefined, afterMs: number, run: () => void): void {
    steps.push({ atMs: nowMs + afterMs, order: (order += 1), owner, run });
  }

  function takeStep(untilMs: number): Step | undefined {
    const first = steps.reduce<Step | undefined>(
      (best, step) =>
        best === undefined || step.atMs < best.atMs || (step.atMs === best.atMs && step.order < best.order)
          ? step
          : best,
      undefined,
    );
    if (first === undefined || first.atMs > untilMs) return undefined;
    steps = steps.filter((step) => step !== first);
    return first;
  }

  function request<T>(owner: Owner, work: () => T): Promise<T> {
    const { network } = owner;
    return new Promise((resolve, reject) => {
      const delay = (): number => 1 + random(network.delayMs);
      if (random(100) >= network.lost) {
        schedule(undefined, delay(), () => {
          const result = work();
          schedule(owner, delay(), () => resolve(result));
        });
        return;
      }
      const { timeoutMs } = network;
      schedule(owner, timeoutMs, () => reject(new AppError('store_away', 'no definite response', { hint: 'Wait.' })));
      const arrivesMs = random(2) === 0 ? delay() : random(2 * timeoutMs);
      if (random(2) === 0) schedule(undefined, arrivesMs, () => void work());
    });
  }

  function put(key: string, bytes: Uint8Array): Tag {
    const tag = tagOf(bytes);
    objects.set(key, { bytes, tag });
    return tag;
  }

  function createStore(owner: Owner): ObjectStore {
    // Leases use no other methods.
    const { folder: _, ...unused } = createFolderStore('/nonexistent');
    return {
      ...unused,
      isShared: true,
      nameOf: (key) => `memory:${key}`,
      get: (key) => request(owner, () => objects.get(key)),
      create: (key, bytes) =>
        request(owner, () => {
          if (objects.has(key)) return 'exists';
          put(key, bytes);
          return 'created';
        }),
      replace: (key, bytes, ifTag) =>
        request(owner, () => (ifTag === 'any' || objects.get(key)?.tag === ifTag ? put(key, bytes) : 'conflict')),
      list: (prefix) => request(owner, () => [...objects.keys()].filter((key) => key.startsWith(prefix))),
      remove: (keys) => request(owner, () => keys.forEach((key) => objects.delete(key))),
    };
  }

  /** Creates a clock that begins anywhere and runs up to a tenth faster or slower. */
  function createClock(owner: Owner): MonotonicClock {
    const [offsetMs, rate] = [random(1_000_000), 0.9 + random(200) / 1000];
    return {
      nowMs: () => offsetMs + nowMs * rate,
      pause: (ms, signal) =>
        new Promise((resolve) => {
          const end = (): void => {
            signal?.removeEventListener('abort', end);
            resolve();
          };
          signal?.addEventListener('abort', end);
          if (signal?.aborted === true) end();
          else schedule(owner, Math.max(0, ms) / rate, end);
        }),
    };
  }

  return {
    random,
    objects,
    nowMs: () => nowMs,
    /** Runs a step outside of all processes after a time. */
    after: (ms: number, run: () => void): void => schedule(undefined, ms, run),
    startProcess(): SimulatedProcess {
      const network = { delayMs: 50, lost: 0, timeoutMs: 2000 };
      const owner: Owner = { network, isKilled: false, resumesAtMs: 0 };
      return {
        network,
        clock: createClock(owner),
        store: createStore(owner),
        stopFor(ms) {
          owner.resumesAtMs = nowMs + ms;
          // A check at the moment at which it resumes, before the steps that it has missed.
          steps.push({ atMs: owner.resumesAtMs, order: -1, owner: undefined, run: () => undefined });
        },
        kill() {
          owner.isKilled = true;
        },
        canRun: () => !owner.isKilled && owner.resumesAtMs <= nowMs,
      };
    },
    /** Runs all steps for a time, and a check after each of them. */
    async run(forMs: number, check: () => void = () => undefined): Promise<void> {
      const untilMs = nowMs + forMs;
      for (let step = takeStep(untilMs); step !== undefined; step = takeStep(untilMs)) {
        nowMs = Math.max(nowMs, step.atMs);
        const { owner } = step;
        if (owner !== undefined && owner.resumesAtMs > nowMs) steps.push({ ...step, atMs: owner.resumesAtMs });
        else if (owner?.isKilled !== true) {
          step.run();
          await settled();
        }
        check();
      }
      nowMs = untilMs;
    },
  };
}

export type Simulation = ReturnType<typeof createSimulation>;
