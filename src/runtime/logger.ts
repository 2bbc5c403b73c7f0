import { destination, pino, type Logger } from 'pino';

export type { Logger } from 'pino';

/** Names whose values never reach a log line, wherever they stand in the logged object (two levels deep). */
const secretNames = ['authorization', 'token', 'secret', 'password', 'pass', 'signature', 'sdkKey', 'cookie'];

/**
 * Creates the process's root logger: JSON lines on standard error, written synchronously so that the last lines
 * before a crash are there. Standard output belongs to data.
 */
export function createLogger(level: string, fields: Record<string, string | number> = {}): Logger {
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
    destination({ fd: 2, sync: true }),
  );
}
