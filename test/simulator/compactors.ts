import path from 'node:path';
import { pino } from 'pino';
import { startCompact } from '../../src/compact/compact.ts';
import type { Compact } from '../../src/compact/wait-for-repair.ts';
import type { CompactOptions } from '../../src/compact/compact-options.ts';
import { describeError, isAppError, isDamage } from '../../src/runtime/errors.ts';
import { createMetrics } from '../../src/runtime/metrics.ts';
import type { Broker } from './broker.ts';
import { Violation, type LakeJudge } from './lake-judge.ts';
import type { Ledger } from './ledger.ts';
import type { Process, World } from './world.ts';

export interface Compactor {
  readonly process: Process;
  compact: Compact | undefined;
  isStopping: boolean;
}

/** What goes on on one data folder. */
export interface Play {
  readonly world: World;
  readonly broker: Broker;
  readonly ledger: Ledger;
  readonly judge: LakeJudge;
  /** The data folder: its compactors may touch nothing else. */
  readonly home: string;
  readonly lakeDir: string;
  readonly options: Omit<CompactOptions, 'spoolDir' | 'withoutLock'>;
  readonly compactors: Set<Compactor>;
  /** Operators' repairs under way. */
  readonly repairs: Set<Process>;
  /** No compactor is started before so many operations, and then with the clock set ahead by so much, milliseconds. */
  downUntil: number;
  stepBeforeStartMs: number;
  /** A second compactor has run at some time, or a power cut has come: errors of one fenced or swept are its due. */
  disturbances: number;
  violation: unknown;
  started: number;
  alarms: number;
}

/** An end that is nobody's fault: fenced by a rival, or given an error by the simulator. Any other end is a finding. */
function isDue(play: Play, { process }: Compactor, error: unknown): boolean {
  // A checkpoint that cannot be read for a moment is told as loudly as one that is damaged.
  if (isDamage(error) || isAppError(error, 'stream_gap')) return String(error.cause).includes('simulated');
  // Want of memory is met by smaller batches and slices, whatever else goes wrong.
  if (isAppError(error, 'lake_protocol') || isAppError(error, 'memory')) return false;
  if (!isAppError(error) && !(error instanceof Error && 'code' in error)) return false;
  return process.faults > 0 || play.disturbances > 0 || isAppError(error, 'broker_away');
}

/** Starts a compactor as the service does, or, as a test may, one that asks for no lock. */
export function startCompactor(play: Play, withoutLock = false): Compactor {
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
  const compactor: Compactor = { process: world.start(name, main, home), compact: undefined, isStopping: false };
  play.compactors.add(compactor);
  return compactor;
}

/** SIGKILL. */
export function endCompactor(play: Play, compactor: Compactor): void {
  play.compactors.delete(compactor);
  play.world.kill(compactor.process);
}

/** SIGTERM: the compactor ends by itself, or is killed before. */
export function stopCompactor(play: Play, compactor: Compactor): void {
  const { compact, process } = compactor;
  if (compact === undefined || compactor.isStopping) return;
  compactor.isStopping = true;
  play.world.note(`${process.name} is told to stop`);
  play.world.signal(process, () =>
    compact.stop().then(
      () => endCompactor(play, compactor),
      (error: unknown) => {
        play.violation ??= new Violation(`a stop failed: ${describeError(error)}`);
      },
    ),
  );
}
