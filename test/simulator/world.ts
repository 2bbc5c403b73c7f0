import { AsyncLocalStorage } from 'node:async_hooks';
import { createRandom, type Random } from '../../src/demo/random.ts';
import type { Clock } from '../../src/runtime/clock.ts';
import type { Disk } from './disk.ts';

/**
 * The simulator's world: time, processes, and every call that code under test makes to the outside.
 *
 * In: calls of the doubles (file system, engine, broker, timers), each of which waits as an operation. Out: one
 * operation at a time, chosen by the seed, so that any order the machine could have run them in may come up, and a seed
 * always gives the same one. Invariant: between two operations nothing is under way, so a process can be killed between
 * any two. Time passes only with operations and sleeps; no real timer has a part in it.
 */

/** A simulated process: what runs inside `World.run` belongs to it. */
export interface Process {
  readonly name: string;
  /** The only folder whose files it may read, write or name; undefined: any. */
  readonly home: string | undefined;
  dead: boolean;
  /** SIGSTOP: none of its operations runs before this time. */
  stoppedUntilMs: number;
  /** Errors that the simulator has given it. */
  faults: number;
  /** What the kernel does when it ends: closes descriptors, drops locks. */
  readonly onEnd: Set<() => void>;
}

/** What becomes of an operation in another way than by being carried out. */
export interface Hazards {
  /** An error in its place, or after it. */
  readonly fault?: () => { readonly error: Error; readonly done: boolean } | undefined;
  /** What a kill in its midst may leave behind. */
  readonly torn?: () => void;
}

interface Operation {
  readonly process: Process;
  readonly what: string;
  /** A sleep is due at this time; other operations at once. */
  readonly dueMs: number;
  readonly execute: () => unknown;
  readonly hazards: Hazards;
  readonly settle: (error: unknown, value: unknown) => void;
}

export interface World {
  readonly random: Random;
  readonly disk: Disk;
  /** The wall clock of every process; `stepClock` moves it, as an operator or NTP may. */
  readonly clock: Clock;
  stepClock(byMs: number): void;
  /** When the clock first showed a time or a later one, by `nowMs`; Infinity: it has not yet. */
  firstShownMs(timeMs: number): number;
  /** Time that never goes back, milliseconds. */
  nowMs(): number;
  /** Share of file system calls and statements that fail, 0 to 1. */
  faultRate: number;
  /** What the engine's memory takes, rows of one statement's result. */
  readonly memory: EngineMemory;
  start(name: string, main: () => Promise<unknown>, home?: string): Process;
  /** Lets a process do something more, as a signal makes it. */
  signal(process: Process, act: () => Promise<unknown>): void;
  /** Ends a process at once: none of its calls ever returns. */
  kill(process: Process): void;
  /** The process that runs now; undefined outside of all, where operations are carried out at once. */
  current(): Process | undefined;
  /** To be told of every path that a call names: a process that reaches out of its home is a finding. */
  touch(file: string): void;
  /** Files that processes have reached for outside of their homes, with who and where. */
  readonly trespasses: readonly string[];
  operate<T>(what: string, execute: () => T | Promise<T>, hazards?: Hazards): Promise<T>;
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Carries out one operation; false when there is none, and nothing will ever happen again. */
  step(): Promise<boolean>;
  /** Ends every process. */
  end(): void;
  note(text: string): void;
  /** Counts something that came about, for the report. */
  count(what: string, by?: number): void;
  readonly counts: Readonly<Record<string, number>>;
  /** The last lines of what happened. */
  trace(): readonly string[];
  /** Operations carried out so far. */
  operations(): number;
  /** Hash of all that happened: equal for two runs of a seed. */
  fingerprint(): string;
}

/** Rows from which on an engine runs out of memory, by what it writes; `Infinity`: it never does. */
export interface EngineMemory {
  flushRows: number;
  rewriteRows: number;
  checkpointRows: number;
}

const traceLines = 80;
/** A moment of the real machine: promises that are settled run on until each waits for an operation again. */
const settleAll = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

const ignore = (): void => undefined;

let active: World | undefined;

/** The world that the doubles belong to now; undefined outside of simulations, where they are what they stand for. */
export function activeWorld(): World | undefined {
  return active;
}

/**
 * Makes a world the doubles' own while `play` runs; time and chance of the whole JavaScript realm are then the world's.
 */
export async function inWorld<T>(world: World, play: () => Promise<T>): Promise<T> {
  const now = performance.now.bind(performance);
  const { process: real } = globalThis;
  const { pid } = real;
  active = world;
  performance.now = () => world.nowMs();
  // Temporaries are named after it: a seed must give the same in every process.
  Object.defineProperty(real, 'pid', { value: 1, configurable: true, enumerable: true });
  try {
    return await play();
  } finally {
    active = undefined;
    performance.now = now;
    Object.defineProperty(real, 'pid', { value: pid, configurable: true, enumerable: true });
  }
}

/** Creates a world; `stepMs` is how long an operation takes on average. */
export function createWorld(seed: number, disk: Disk, stepMs: number): World {
  const random = createRandom(seed);
  const storage = new AsyncLocalStorage<Process>();
  const waiting = new Set<Operation>();
  const running = new Set<Process>();
  let lines: string[] = [];
  let hash = 0;
  let nowMs = 0;
  let operations = 0;
  const trespasses: string[] = [];
  const counts: Record<string, number> = {};
  let wallMs = Date.UTC(2026, 0, 15, 12);
  /** How the clock was set, and from when to when. */
  const settings = [{ wallMs, sinceMs: 0, untilMs: Infinity }];

  function note(text: string): void {
    // The folder has another name in each run.
    const line = `${nowMs.toFixed(1).padStart(9)} ${text.replaceAll(disk.root, '')}`;
    for (let at = 0; at < line.length; at += 1) hash = (Math.imul(hash, 31) + line.charCodeAt(at)) >>> 0;
    lines.push(line);
    if (lines.length > 2 * traceLines) lines = lines.slice(-traceLines);
  }

  function enqueue<T>(
    operation: Pick<Operation, 'what' | 'dueMs' | 'execute' | 'hazards'>,
    process: Process,
  ): { readonly done: Promise<T>; readonly settle: Operation['settle'] } {
    let settle: Operation['settle'] = ignore;
    const done = new Promise<T>((resolve, reject) => {
      settle = (error, value) => (error === undefined ? resolve(value as T) : reject(error));
    });
    const entry: Operation = {
      ...operation,
      process,
      settle: (error, value) => {
        waiting.delete(entry);
        settle(error, value);
      },
    };
    // A dead process goes on in JavaScript until its next call, which never returns.
    if (!process.dead) waiting.add(entry);
    return { done, settle: entry.settle };
  }

  async function carryOut(operation: Operation): Promise<void> {
    const { process, what, execute, hazards } = operation;
    const fault = world.faultRate > 0 && random.chance(world.faultRate) ? hazards.fault?.() : undefined;
    if (fault !== undefined) process.faults += 1;
    try {
      const value = fault === undefined || fault.done ? await execute() : undefined;
      note(`${process.name} ${what}${fault === undefined ? '' : ` -> ${fault.error.message}`}`);
      operation.settle(fault?.error, value);
    } catch (error) {
      note(`${process.name} ${what} -> ${String(error).split('\n')[0]}`);
      operation.settle(error, undefined);
    }
    await settleAll();
  }

  /** Time goes on to the first operation that can run. */
  function passTime(): Operation[] {
    const readyMs = (operation: Operation): number => Math.max(operation.dueMs, operation.process.stoppedUntilMs);
    if (waiting.size === 0) return [];
    nowMs = Math.max(nowMs, Math.min(...[...waiting].map(readyMs)));
    return [...waiting].filter((operation) => readyMs(operation) <= nowMs);
  }

  const world: World = {
    random,
    disk,
    faultRate: 0,
    memory: { flushRows: Infinity, rewriteRows: Infinity, checkpointRows: Infinity },
    trespasses,
    touch(file) {
      const process = storage.getStore();
      // Folders above may be made and synced.
      if (
        process?.home === undefined ||
        `${file}/`.startsWith(`${process.home}/`) ||
        process.home.startsWith(`${file}/`)
      )
        return;
      trespasses.push(`${process.name} reaches for ${file.replaceAll(disk.root, '')}`);
    },
    clock: { nowMs: () => Math.floor(wallMs + nowMs) },
    stepClock(byMs) {
      wallMs += byMs;
      Object.assign(settings.at(-1) ?? {}, { untilMs: nowMs });
      settings.push({ wallMs, sinceMs: nowMs, untilMs: Infinity });
      note(`the clock is set ${byMs} ms ${byMs < 0 ? 'back' : 'ahead'}`);
    },
    firstShownMs: (timeMs) =>
      Math.min(
        ...settings
          .map((setting) => ({ ...setting, shownMs: Math.max(setting.sinceMs, timeMs - setting.wallMs) }))
          .filter(({ shownMs, untilMs }) => shownMs < untilMs && shownMs <= nowMs)
          .map(({ shownMs }) => shownMs),
      ),
    nowMs: () => nowMs,
    start(name, main, home) {
      const process: Process = { name, home, dead: false, stoppedUntilMs: 0, faults: 0, onEnd: new Set() };
      note(`${name} starts`);
      running.add(process);
      storage.run(process, () => void Promise.resolve().then(main));
      return process;
    },
    signal: (process, act) => storage.run(process, () => void act()),
    kill(process) {
      if (process.dead) return;
      process.dead = true;
      running.delete(process);
      for (const operation of waiting) {
        if (operation.process !== process) continue;
        waiting.delete(operation);
        if (random.chance(0.5)) operation.hazards.torn?.();
      }
      for (const end of process.onEnd) end();
      note(`${process.name} is gone`);
    },
    current: () => storage.getStore(),
    async operate<T>(what: string, execute: () => T | Promise<T>, hazards: Hazards = {}): Promise<T> {
      const process = storage.getStore();
      return process === undefined ? execute() : enqueue<T>({ what, dueMs: 0, execute, hazards }, process).done;
    },
    async sleep(ms, signal) {
      const process = storage.getStore();
      // Whoever looks from outside and waits finds the world as it was, only later.
      if (process === undefined) {
        nowMs += ms;
        return;
      }
      const { done, settle } = enqueue<void>(
        { what: `slept ${Math.round(ms)} ms`, dueMs: nowMs + ms, execute: () => undefined, hazards: {} },
        process,
      );
      const abort = (): void => settle(new DOMException('The operation was aborted', 'AbortError'), undefined);
      signal?.addEventListener('abort', abort, { once: true });
      await done.finally(() => signal?.removeEventListener('abort', abort));
    },
    async step() {
      const ready = passTime();
      if (ready.length === 0) return false;
      const operation = random.pick(ready);
      nowMs += random.next() * 2 * stepMs;
      operations += 1;
      await carryOut(operation);
      return true;
    },
    end() {
      for (const process of running) world.kill(process);
    },
    note,
    count: (what, by = 1) => void (counts[what] = (counts[what] ?? 0) + by),
    counts,
    trace: () => lines.slice(-traceLines),
    operations: () => operations,
    fingerprint: () => hash.toString(16),
  };
  return world;
}
