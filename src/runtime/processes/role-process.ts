import process from 'node:process';
import { createNews } from './news.ts';
import { startPollLoop } from '../async/poll-loop.ts';
import { AppError, describeError, isAppError, isErrorCode, type ErrorCode } from '../errors.ts';
import type { Stoppable } from '../lifecycle.ts';
import type { Logger } from '../logger.ts';
import type { Metrics } from '../metrics.ts';

/** What a role's process sends its supervisor. */
type RoleMessage =
  | { readonly type: 'ready'; readonly port?: number }
  | { readonly type: 'failed'; readonly code: ErrorCode; readonly message: string; readonly hint?: string }
  | { readonly type: 'report'; readonly facts: Readonly<Record<string, unknown>> }
  | { readonly type: 'metrics'; readonly metrics: unknown[] };

/** The supervisor's view of the service, as a role needs it. */
export interface ServiceView {
  /** Nothing keeps the role from its own work. */
  readonly ready: boolean;
  /** The service stops soon: each answer is the last on its connection. */
  readonly draining?: true;
}

/** What the supervisor sends a role's process: its view, and that it wants to see the metrics. */
export type SupervisorMessage = { readonly type: 'service'; readonly view: ServiceView } | { readonly type: 'measure' };

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * Reads a role's message; undefined for anything else: node:cluster sends messages of its own over the same channel.
 */
export function parseRoleMessage(value: unknown): RoleMessage | undefined {
  if (!isRecord(value)) return undefined;
  switch (value['type']) {
    case 'ready': {
      const { port } = value;
      if (port === undefined) return { type: 'ready' };
      return Number.isInteger(port) ? { type: 'ready', port: port as number } : undefined;
    }
    case 'failed': {
      const { code, message, hint } = value;
      if (!isErrorCode(code) || typeof message !== 'string') return undefined;
      return { type: 'failed', code, message, ...(typeof hint === 'string' ? { hint } : {}) };
    }
    case 'report': {
      const { facts } = value;
      return isRecord(facts) ? { type: 'report', facts } : undefined;
    }
    case 'metrics': {
      const { metrics } = value;
      return Array.isArray(metrics) ? { type: 'metrics', metrics } : undefined;
    }
    default:
      return undefined;
  }
}

/** Reads the supervisor's message; undefined for anything else. */
export function parseSupervisorMessage(value: unknown): SupervisorMessage | undefined {
  if (!isRecord(value)) return undefined;
  if (value['type'] === 'measure') return { type: 'measure' };
  if (value['type'] !== 'service' || !isRecord(value['view'])) return undefined;
  const { ready, draining } = value['view'];
  if (typeof ready !== 'boolean') return undefined;
  return { type: 'service', view: { ready, ...(draining === true ? { draining } : {}) } };
}

const reportEveryMs = 1000;
/** Time to stop after the supervisor is gone, ms: then there is no broker to drain into, and a crash loses nothing. */
const orphanGraceMs = 1000;

/** A stage as its process runs it. */
export interface Stage extends Stoppable {
  /** The port it listens on, when it does. */
  readonly port?: number;
  /** Rejects when the stage cannot go on; the process then ends and its supervisor starts another. */
  readonly failed?: Promise<never>;
  /** Short facts for `tributary status` and `/readyz`. */
  facts?(): Readonly<Record<string, unknown>>;
  /** Takes the supervisor's view of the whole service: when it has changed, and every few seconds. */
  onService?(view: ServiceView): void;
}

function send(message: RoleMessage): void {
  // A supervisor that is gone is noticed by the disconnect event, not here.
  process.send?.(message, undefined, {}, () => undefined);
}

/** Resolves with the reason to stop: the supervisor asks, or it is gone (its end of the channel closed). */
function stopRequested(): Promise<string> {
  return new Promise((resolve) => {
    process.once('SIGTERM', () => resolve('asked to stop'));
    const orphaned = (): void => {
      resolve('supervisor is gone');
      setTimeout(() => process.exit(1), orphanGraceMs).unref();
    };
    process.once('disconnect', orphaned);
    // It may have gone while this process was loading: then the event was before the listener.
    if (process.send !== undefined && !process.connected) orphaned();
  });
}

/**
 * Runs a stage as a supervised process: starts it, says ready, reports within a second what has changed, and every few
 * seconds that it is there, answers with its metrics, and drains it when the supervisor asks or is gone. Returns the exit
 * code; an error of the start is sent to the supervisor in its own words.
 */
export async function runRoleProcess(start: () => Promise<Stage>, metrics: Metrics, logger: Logger): Promise<number> {
  const stop = stopRequested();

  let stage: Stage;
  try {
    stage = await start();
  } catch (error) {
    const described =
      error instanceof AppError ? error : new AppError('start_failed', describeError(error), { cause: error });
    logger.error(
      { error: describeError(error), stack: error instanceof Error ? error.stack : undefined },
      'role did not start',
    );
    send({
      type: 'failed',
      code: described.code,
      message: described.message,
      ...(described.hint === undefined ? {} : { hint: described.hint }),
    });
    return 1;
  }
  const answerMetrics = (): void =>
    void metrics.snapshot().then(
      (snapshot) => send({ type: 'metrics', metrics: snapshot }),
      (error: unknown) => logger.error({ error: describeError(error) }, 'metrics cannot be read'),
    );
  process.on('message', (value) => {
    const message = parseSupervisorMessage(value);
    if (message?.type === 'service') stage.onService?.(message.view);
    else if (message !== undefined) answerMetrics();
  });
  send(stage.port === undefined ? { type: 'ready' } : { type: 'ready', port: stage.port });

  const news = createNews();
  const report = (): void => {
    const facts = stage.facts?.() ?? {};
    news.pass(JSON.stringify(facts), () => send({ type: 'report', facts }));
  };
  const reporting = startPollLoop(report, {
    everyMs: reportEveryMs,
    onError: (error) => logger.error({ error: describeError(error) }, 'report cannot be made'),
    pausesFirst: true,
  });
  let code = 0;
  try {
    const reason = await Promise.race([stop, ...(stage.failed === undefined ? [] : [stage.failed])]);
    logger.info({ reason }, 'role stops');
  } catch (error) {
    code = 1;
    const level = isAppError(error, 'stopping') ? 'info' : 'error';
    logger[level](
      { error: describeError(error), stack: error instanceof Error ? error.stack : undefined },
      'role failed',
    );
  }
  await reporting.stop();
  await stage.stop();
  return code;
}
