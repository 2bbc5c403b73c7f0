import { destination, pino, type Logger } from 'pino';

export type { Logger } from 'pino';

/** Names whose values never reach a log line, wherever they stand in the logged object (two levels deep). */
const secretNames = ['authorization', 'token', 'secret', 'password', 'pass', 'signature', 'sdkKey', 'cookie'];

/** Lines that wait while they cannot be written, bytes; then they are dropped. */
const maxWaitingBytes = 1024 * 1024;

/**
 * Creates the process's root logger: JSON lines on standard error, written synchronously so that the last lines
 * before a crash are there. Standard output belongs to data. A log that cannot be written (its disk is full, its reader
 * has gone) never ends the process: lines wait, within a limit, and are written with the next that can be.
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
