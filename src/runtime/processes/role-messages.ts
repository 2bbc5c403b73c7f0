import { isErrorCode, type ErrorCode } from '../errors.ts';

/** What a role's process sends its supervisor. */
export type RoleMessage =
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
