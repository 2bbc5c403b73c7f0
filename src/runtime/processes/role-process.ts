import process from 'node:process';
import { createHeartbeat } from './heartbeat.ts';
import { startPollLoop } from '../async/poll-loop.ts';
import { AppError, describeError, isAppError, isErrorCode, type ErrorCode } from '../errors.ts';
import type { Stoppable } from '../lifecycle.ts';
import type { Logger } from '../logger.ts';
import type { Metrics } from '../metrics.ts';
import { isFlag, isInteger, isText, listOf, oneOf, optional, shapeOf } from '../store/shape.ts';

type RoleMessage =
  | { readonly type: 'ready'; readonly port?: number }
  | { readonly type: 'failed'; readonly code: ErrorCode; readonly message: string; readonly hint?: string }
  | { readonly type: 'report'; readonly facts: Readonly<Record<string, unknown>> }
  | { readonly type: 'metrics'; readonly metrics: unknown[] };

/** The supervisor's view of the service, as a role needs it. */
export interface ServiceView {
  /** Whether nothing prevents the role from its work. */
  readonly ready: boolean;
  /** Whether the service stops soon. */
  readonly draining?: true;
  /** Running hosts that keep rejected requests; absent on one machine. */
  readonly hosts?: readonly HostName[];
}

export interface HostName {
  readonly id: string;
  /** Hostname, for people. */
  readonly name: string;
}

/** A message of the supervisor: its view, or a request for metrics. */
export type SupervisorMessage = { readonly type: 'service'; readonly view: ServiceView } | { readonly type: 'measure' };

const isObject = (value: unknown): boolean => typeof value === 'object' && value !== null && !Array.isArray(value);

const roleMessages = [
  shapeOf<RoleMessage & { readonly type: 'ready' }>({ type: oneOf(['ready']), port: optional(isInteger) }),
  shapeOf<RoleMessage & { readonly type: 'failed' }>({
    type: oneOf(['failed']),
    code: isErrorCode,
    message: isText,
    hint: optional(isText),
  }),
  shapeOf<RoleMessage & { readonly type: 'report' }>({ type: oneOf(['report']), facts: isObject }),
  shapeOf<RoleMessage & { readonly type: 'metrics' }>({ type: oneOf(['metrics']), metrics: Array.isArray }),
];
const isRoleMessage = (value: unknown): value is RoleMessage => roleMessages.some((isMessage) => isMessage(value));

/** Parses a role's message; undefined for messages of node:cluster on the same channel. */
export function parseRoleMessage(value: unknown): RoleMessage | undefined {
  return isRoleMessage(value) ? value : undefined;
}

const isMeasure = shapeOf<{ readonly type: 'measure' }>({ type: oneOf(['measure']) });
const isServiceMessage = shapeOf<SupervisorMessage & { readonly type: 'service' }>({
  type: oneOf(['service']),
  view: shapeOf<ServiceView>({
    ready: isFlag,
    draining: optional(isFlag),
    hosts: optional(listOf(shapeOf<HostName>({ id: isText, name: isText }))),
  }),
});

/** Parses a supervisor's message; undefined for others. */
export function parseSupervisorMessage(value: unknown): SupervisorMessage | undefined {
  if (isMeasure(value)) return { type: 'measure' };
  if (!isServiceMessage(value)) return undefined;
  const { ready, draining, hosts } = value.view;
  const view = { ready, ...(draining === true ? { draining } : {}), ...(hosts === undefined ? {} : { hosts }) };
  return { type: 'service', view };
}

const reportEveryMs = 1000;
/** Grace after the supervisor has exited, ms: without a broker there is nothing to drain, and a crash loses nothing. */
const orphanGraceMs = 1000;

export interface Stage extends Stoppable {
  readonly port?: number;
  /** Rejects when the stage cannot continue; the supervisor then starts another process. */
  readonly failed?: Promise<never>;
  /** Returns members for `tributary status` and `/readyz`. */
  facts?(): Readonly<Record<string, unknown>>;
  /** Receives the supervisor's view when it changes, and every few seconds. */
  onService?(view: ServiceView): void;
}

function send(message: RoleMessage): void {
  process.send?.(message, undefined, {}, () => undefined);
}

/** Resolves with the reason to stop: the supervisor asks for it, or has exited. */
function stopRequested(): Promise<string> {
  return new Promise((resolve) => {
    process.once('SIGTERM', () => resolve('asked to stop'));
    const orphaned = (): void => {
      resolve('supervisor exited');
      setTimeout(() => process.exit(1), orphanGraceMs).unref();
    };
    process.once('disconnect', orphaned);
    // If it exited while this process was loading, the event came before the listener.
    if (process.send !== undefined && !process.connected) orphaned();
  });
}

/**
 * Runs a stage as a supervised process: reports readiness, changes, heartbeats and metrics; drains it when the
 * supervisor asks or has exited. Returns the exit code, after sending the error of a failed start.
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
      (error: unknown) => logger.error({ error: describeError(error) }, 'cannot read metrics'),
    );
  process.on('message', (value) => {
    const message = parseSupervisorMessage(value);
    if (message?.type === 'service') stage.onService?.(message.view);
    else if (message !== undefined) answerMetrics();
  });
  send(stage.port === undefined ? { type: 'ready' } : { type: 'ready', port: stage.port });

  const heartbeat = createHeartbeat();
  const report = (): void => {
    const facts = stage.facts?.() ?? {};
    heartbeat.send(JSON.stringify(facts), () => send({ type: 'report', facts }));
  };
  const reporting = startPollLoop(report, {
    everyMs: reportEveryMs,
    onError: (error) => logger.error({ error: describeError(error) }, 'cannot create report'),
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
