import type { AccessReader } from '../../access/access.ts';
import type { Clock } from '../../runtime/clock.ts';
import type { Stoppable } from '../../runtime/lifecycle.ts';
import type { DataPlan, DataQuestion } from './data-messages.ts';
import { selectApps, type ExportApp, type ExportSpec } from './export-spec.ts';
import type { LookKind, LookPlan } from './look-messages.ts';
import { findPlanLists, type ListFault, type ListFolders } from './plan-lists.ts';
import { tableDirOf } from './table-of.ts';
import type { WorkerLimits } from './worker-messages.ts';
import type { DataEnd, LookEnd, RunLook, RunQuestion, WorkerLoss } from './worker-process.ts';

/** Who looks, at what. */
export interface LookRequest {
  readonly look: LookKind;
  readonly request: ExportSpec;
  readonly idAccount: number;
}

/** Who asks what of the data of which apps, all of the account's. */
export interface DataRequest {
  readonly question: DataQuestion;
  readonly apps: readonly ExportApp[];
  readonly idAccount: number;
}

/** Too many of the account wait already, and it was not begun. */
interface Busy {
  readonly kind: 'busy';
}

/** How a look ended. */
export type LookResult = LookEnd | Busy;
/** How a question ended. */
export type DataResult = DataEnd | Busy;

/**
 * Looks at exports before they are ordered, and at data, each in a worker of its own: a bounded number at once, one of an account,
 * and a bounded number waiting. Nothing of a look is stored.
 */
export interface Looks extends Stoppable {
  /** Looks; settles when its worker is gone. Never throws. */
  run(request: LookRequest, signal: AbortSignal): Promise<LookResult>;
  /** Answers a question; likewise. */
  ask(request: DataRequest, signal: AbortSignal): Promise<DataResult>;
}

export interface LooksDependencies {
  readonly access: AccessReader;
  readonly clock: Clock;
  readonly runLook: RunLook;
  readonly runQuestion: RunQuestion;
  /** Called with what is damaged in the lake when a look meets it. */
  readonly onDamage: (error: string) => void;
}

export interface LooksOptions extends ListFolders {
  readonly lakeDir: string;
  readonly limits: WorkerLimits;
  readonly retentionMs: number;
}

/** Workers at once: they share the machine with exports and import. */
const atOnce = 2;
/** Of an account: however long its looks take, the other worker is there for others. */
const atOnceOfAccount = 1;
/** Looks of an account, those that wait and those that run; of one that asks for more, the client comes again. */
const mostOfAccount = 8;
const mostOfAll = 64;
/** Wall-clock limit of a worker, milliseconds. */
export const lookTimeoutMs = 20_000;

interface Waiting {
  readonly idAccount: number;
  readonly begin: () => void;
}

/** Gives turns, a bounded number at once and of an account, to whoever waits, in their order. */
function createTurns() {
  const running = new Map<number, number>();
  const waiting = new Set<Waiting>();
  const countOf = (idAccount: number): number => running.get(idAccount) ?? 0;
  const total = (): number => [...running.values()].reduce((sum, count) => sum + count, 0);

  function next(): void {
    while (total() < atOnce && waiting.size > 0) {
      const first = [...waiting].find(({ idAccount }) => countOf(idAccount) < atOnceOfAccount);
      if (first === undefined) return;
      waiting.delete(first);
      running.set(first.idAccount, countOf(first.idAccount) + 1);
      first.begin();
    }
  }

  return {
    isFull(idAccount: number): boolean {
      const own = [...waiting].filter((other) => other.idAccount === idAccount).length + countOf(idAccount);
      return own >= mostOfAccount || waiting.size + total() >= mostOfAll;
    },
    /** Waits for a turn; false when the signal came first. */
    take: (idAccount: number, signal: AbortSignal): Promise<boolean> =>
      new Promise((resolve) => {
        const entry = { idAccount, begin };
        function begin(): void {
          signal.removeEventListener('abort', leave);
          resolve(true);
        }
        function leave(): void {
          waiting.delete(entry);
          resolve(false);
        }
        if (signal.aborted) return resolve(false);
        signal.addEventListener('abort', leave, { once: true });
        waiting.add(entry);
        next();
      }),
    giveBack(idAccount: number): void {
      const left = countOf(idAccount) - 1;
      if (left > 0) running.set(idAccount, left);
      else running.delete(idAccount);
      next();
    },
  };
}

function toResult({ error, isDamage }: ListFault): LookResult {
  return { kind: 'failed', reason: isDamage ? 'damage' : 'user', error };
}

/** Creates what looks at exports; nothing runs until it is asked. */
export function createLooks(
  { access, clock, runLook, runQuestion, onDamage }: LooksDependencies,
  options: LooksOptions,
): Looks {
  const { lakeDir, limits, retentionMs } = options;
  const turns = createTurns();
  const stopping = new AbortController();
  const underWay = new Set<Promise<unknown>>();

  async function begin({ look, request, idAccount }: LookRequest, signal: AbortSignal): Promise<LookResult> {
    const lists = await findPlanLists(request, idAccount, options);
    if ('error' in lists) return toResult(lists);
    const apps = selectApps(request, access.current().appsOfAccount(idAccount));
    const tableDir = tableDirOf(lakeDir, request);
    const plan: LookPlan = { look, request, apps, ...lists, tableDir, limits, retentionMs, begunMs: clock.nowMs() };
    return await runLook(plan, { timeoutMs: lookTimeoutMs, signal });
  }

  async function answer({ question, apps }: DataRequest, signal: AbortSignal): Promise<DataEnd> {
    const plan: DataPlan = { question, apps, lakeDir, limits };
    return await runQuestion(plan, { timeoutMs: lookTimeoutMs, signal });
  }

  async function runInTurn<End extends LookResult | DataEnd>(
    idAccount: number,
    signal: AbortSignal,
    work: () => Promise<End>,
  ): Promise<End | WorkerLoss | Busy> {
    if (turns.isFull(idAccount)) return { kind: 'busy' };
    if (!(await turns.take(idAccount, signal))) return { kind: 'aborted' };
    try {
      const result = await work();
      if (result.kind === 'failed' && result.reason === 'damage') onDamage(result.error);
      return result;
    } catch (error) {
      return { kind: 'crashed', error: String(error) };
    } finally {
      turns.giveBack(idAccount);
    }
  }

  /** Keeps what is under way, so that stopping ends it. */
  async function follow<End>(signal: AbortSignal, start: (until: AbortSignal) => Promise<End>): Promise<End> {
    const running = start(AbortSignal.any([signal, stopping.signal]));
    underWay.add(running);
    return await running.finally(() => underWay.delete(running));
  }

  return {
    run: (request, signal) =>
      follow(signal, (until) => runInTurn(request.idAccount, until, () => begin(request, until))),
    ask: (request, signal) =>
      follow(signal, (until) => runInTurn(request.idAccount, until, () => answer(request, until))),
    async stop() {
      stopping.abort();
      await Promise.all(underWay);
    },
  };
}
