import path from 'node:path';
import { pino } from 'pino';
import { startCompact } from '../../src/compact/compact.ts';
import type { Compactor } from '../../src/compact/wait-for-repair.ts';
import type { CompactOptions } from '../../src/compact/compact-options.ts';
import { describeError, isAppError, isDamage } from '../../src/runtime/errors.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';
import type { Broker } from './broker.ts';
import { Violation, type LakeJudge } from './lake-judge.ts';
import type { Ledger } from './ledger.ts';
import type { Process, World } from './world.ts';

export interface SimulatedCompactor {
  readonly process: Process;
  compact: Compactor | undefined;
  isStopping: boolean;
}

/** State of one data folder in a scenario. */
export interface Play {
  readonly world: World;
  readonly broker: Broker;
  readonly ledger: Ledger;
  readonly judge: LakeJudge;
  /** The data folder: its compactors may use nothing outside of it. */
  readonly home: string;
  readonly lakeDir: string;
  readonly options: Omit<CompactOptions, 'spoolDir' | 'withoutLock'>;
  readonly compactors: Set<SimulatedCompactor>;
  /** Running repairs of operators. */
  readonly repairs: Set<Process>;
  /** No compactor starts before this number of operations; then the clock is set ahead, milliseconds. */
  downUntil: number;
  stepBeforeStartMs: number;
  /**
   * Number of second compactors and power cuts so far; after one, errors of a fenced or swept compactor are expected.
   */
  disturbances: number;
  violation: unknown;
  started: number;
  alarms: number;
}

/**
 * Reports whether an exit is expected: fenced by a rival, or caused by an injected error. Any other exit is a finding.
 */
function isDue(play: Play, { process }: SimulatedCompactor, error: unknown): boolean {
  // A checkpoint that is unreadable for a moment is reported like a damaged one.
  if (isDamage(error) || isAppError(error, 'stream_gap')) return String(error.cause).includes('simulated');
  // A lack of memory must lead to smaller batches and slices, even with other errors.
  if (isAppError(error, 'lake_protocol') || isAppError(error, 'memory')) return false;
  if (!isAppError(error) && !(error instanceof Error && 'code' in error)) return false;
  return process.faults > 0 || play.disturbances > 0 || isAppError(error, 'broker_away');
}

/** Starts a compactor as the service does, or without the lock. */
export function startCompactor(play: Play, withoutLock = false): SimulatedCompactor {
  const { world, broker, options, home } = play;
  play.started += 1;
  const name = `${path.basename(home)} compactor ${play.started}`;
  const spoolDir = path.join(home, withoutLock ? `spool-${play.started}` : 'spool');
  const destination = {
    write: (line: string) => {
      const { msg, fault, level } = JSON.parse(line) as { msg: string; fault?: string; level: number };
      world.note(`${name}: ${msg}${fault === undefined ? '' : ` (${fault})`}`);
      if (level >= 50 && fault !== undefined) play.alarms += 1;
    },
  };
  const logger = pino({ level: 'info', base: null }, destination);
  const main = async (): Promise<void> => {
    try {
      compactor.compact = await startCompact(
        { reader: broker.reader, clock: world.clock, metrics: createMetrics(), logger },
        { ...options, spoolDir, withoutLock },
      );
      await compactor.compact.failed;
    } catch (error) {
      if (compactor.process.dead) return;
      world.note(`${name} ends: ${describeError(error)}`);
      if (!compactor.isStopping && !isDue(play, compactor, error))
        play.violation ??= new Violation(
          `${name} ended without a cause: ${describeError(error)}\n${String((error as Error).stack)}`,
        );
      if (!compactor.isStopping) endCompactor(play, compactor);
    }
  };
  const compactor: SimulatedCompactor = {
    process: world.start(name, main, home),
    compact: undefined,
    isStopping: false,
  };
  play.compactors.add(compactor);
  return compactor;
}

/** SIGKILL. */
export function endCompactor(play: Play, compactor: SimulatedCompactor): void {
  play.compactors.delete(compactor);
  play.world.kill(compactor.process);
}

/** SIGTERM: the compactor exits, or is killed before it does. */
export function stopCompactor(play: Play, compactor: SimulatedCompactor): void {
  const { compact, process } = compactor;
  if (compact === undefined || compactor.isStopping) return;
  compactor.isStopping = true;
  play.world.note(`${process.name} is asked to stop`);
  play.world.signal(process, () =>
    compact.stop().then(
      () => endCompactor(play, compactor),
      (error: unknown) => {
        play.violation ??= new Violation(`a stop failed: ${describeError(error)}`);
      },
    ),
  );
}
