import { AsyncLocalStorage } from 'node:async_hooks';
import { createRandom, type Random } from '../../src/demo/random.ts';
import type { Clock } from '../../src/runtime/clock.ts';
import type { Disk } from './disk.ts';

/**
 * The simulator's world: time, processes, and every call of the tested code to the outside.
 *
 * In: calls of the doubles (file system, engine, broker, timers), each of which waits as an operation. Out: one
 * operation at a time, chosen by the seed. Any order that a machine could run may occur, and a seed always gives the
 * same order. Invariant: between two operations nothing runs, so that a process can be killed between any two. Time
 * passes only with operations and sleeps, never with a real timer.
 */

/** A simulated process: the code that runs inside `World.run` belongs to it. */
export interface Process {
  readonly name: string;
  /** The only folder with files that it may read, write or name; undefined: any. */
  readonly home: string | undefined;
  dead: boolean;
  /** SIGSTOP: its operations wait until this time. */
  stoppedUntilMs: number;
  /** Number of errors injected into it. */
  faults: number;
  /** Work of the kernel at its end: closes descriptors, drops locks. */
  readonly onEnd: Set<() => void>;
}

/** Ways in which an operation can go wrong. */
export interface Hazards {
  /** An error instead of it, or after it. */
  readonly fault?: () => { readonly error: Error; readonly done: boolean } | undefined;
  /** Partial work that a kill may leave. */
  readonly torn?: () => void;
}

interface Operation {
  readonly process: Process;
  readonly what: string;
  /** Time at which a sleep ends; other operations are due at once. */
  readonly dueMs: number;
  readonly execute: () => unknown;
  readonly hazards: Hazards;
  readonly settle: (error: unknown, value: unknown) => void;
}

export interface World {
  readonly random: Random;
  readonly disk: Disk;
  /** The wall clock of every process; `stepClock` sets it, as an operator or NTP may. */
  readonly clock: Clock;
  stepClock(byMs: number): void;
  /** Returns when the clock first showed this time or a later one, by `nowMs`; Infinity: not yet. */
  firstShownMs(timeMs: number): number;
  /** Returns the monotonic time, milliseconds. */
  nowMs(): number;
  /** Share of file system calls and statements that fail, 0 to 1. */
  faultRate: number;
  /** Memory of the engine, in rows of one statement's result. */
  readonly memory: EngineMemory;
  start(name: string, main: () => Promise<unknown>, home?: string): Process;
  /** Runs `act` in a process, as a signal does. */
  signal(process: Process, act: () => Promise<unknown>): void;
  /** Ends a process at once: its pending calls never return. */
  kill(process: Process): void;
  /** Returns the running process; undefined outside of processes, where operations run at once. */
  current(): Process | undefined;
  /** Records a path that a call names: a path outside of the process's home is a finding. */
  touch(file: string): void;
  /** Paths outside of their homes that processes have named, each with the process. */
  readonly trespasses: readonly string[];
  operate<T>(what: string, execute: () => T | Promise<T>, hazards?: Hazards): Promise<T>;
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Runs one operation; returns false if there is none and none will follow. */
  step(): Promise<boolean>;
  end(): void;
  note(text: string): void;
  /** Counts an event for the report. */
  count(what: string, by?: number): void;
  readonly counts: Readonly<Record<string, number>>;
  /** Returns the last trace lines. */
  trace(): readonly string[];
  /** Returns the number of operations so far. */
  operations(): number;
  /** Returns the hash of all events: equal for two runs of a seed. */
  fingerprint(): string;
}

/** Rows at which an engine runs out of memory, by kind of output; `Infinity`: never. */
export interface EngineMemory {
  flushRows: number;
  rewriteRows: number;
  checkpointRows: number;
}

const traceLines = 80;
/** Waits until each settled promise has run on to its next operation. */
const settleAll = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

const ignore = (): void => undefined;

let active: World | undefined;

/** Returns the world of the doubles; undefined outside of simulations, where the doubles call the real modules. */
export function activeWorld(): World | undefined {
  return active;
}

/**
 * Makes the doubles use a world while `play` runs; the world also sets time and randomness of the whole JavaScript
 * realm.
 */
export async function inWorld<T>(world: World, play: () => Promise<T>): Promise<T> {
  const now = performance.now.bind(performance);
  const { process: real } = globalThis;
  const { pid } = real;
  active = world;
  performance.now = () => world.nowMs();
  // Temporary files are named after it: a seed must give the same names in every process.
  Object.defineProperty(real, 'pid', { value: 1, configurable: true, enumerable: true });
  try {
    return await play();
  } finally {
    active = undefined;
    performance.now = now;
    Object.defineProperty(real, 'pid', { value: pid, configurable: true, enumerable: true });
  }
}

/** Creates a world; `stepMs`: average duration of an operation. */
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
  /** Settings of the clock, each with its interval. */
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
    // A dead process continues in JavaScript until its next call, which never returns.
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

  /** Advances the time to the first operation that can run. */
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
      // Folders above may be created and synced.
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
      note(`${process.name} has ended`);
    },
    current: () => storage.getStore(),
    async operate<T>(what: string, execute: () => T | Promise<T>, hazards: Hazards = {}): Promise<T> {
      const process = storage.getStore();
      return process === undefined ? execute() : enqueue<T>({ what, dueMs: 0, execute, hazards }, process).done;
    },
    async sleep(ms, signal) {
      const process = storage.getStore();
      // A caller outside of the processes waits and finds the world unchanged, only later.
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
