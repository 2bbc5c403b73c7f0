import { destination, pino, type Logger } from 'pino';

export type { Logger } from 'pino';

/** Names of members whose values are redacted, up to two levels deep. */
const secretNames = ['authorization', 'token', 'secret', 'password', 'pass', 'signature', 'sdkKey', 'cookie'];

/** Buffer for lines that cannot be written, bytes; further lines are dropped. */
const maxWaitingBytes = 1024 * 1024;

/**
 * Creates the root logger: JSON lines on standard error, synchronous, so that a crash loses none. A log
 * that cannot be written never ends the process: lines are buffered up to a limit.
 */
export function createLogger(level: string, fields: Record<string, string | number> = {}, fd = 2): Logger {
  const lines = destination({ fd, sync: true, maxLength: maxWaitingBytes });
  lines.on('error', () => undefined);
  return pino(
    {
      level,
      base: { pid: process.pid, ...fields },
      timestamp: pino.stdTimeFunctions.isoTime,
      redact: {
        paths: secretNames.flatMap((name) => [name, `*.${name}`, `*.*.${name}`]),
        censor: '[redacted]',
      },
      formatters: { level: (label) => ({ level: label }) },
    },
    lines,
  );
}
