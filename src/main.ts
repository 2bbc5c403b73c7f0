#!/usr/bin/env node
import { createInterface } from 'node:readline/promises';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import type { Command, CommandContext } from './cli/command.ts';
import { asksForHelp, renderCommands, renderHelp } from './cli/help.ts';
import { AppError, describeError } from './runtime/errors.ts';
import { useCodeCache } from './runtime/files/code-cache.ts';

/**
 * Every verb, in the order of the help. Each is loaded when it is called: a small command starts fast and stays small.
 */
const commands: Readonly<Record<string, () => Promise<Command>>> = {
  start: async () => (await import('./cli/start.ts')).startCommand,
  app: async () => (await import('./cli/app.ts')).appCommand,
  user: async () => (await import('./cli/user.ts')).userCommand,
  status: async () => (await import('./cli/status.ts')).statusCommand,
  catalogue: async () => (await import('./cli/catalogue.ts')).catalogueCommand,
  lake: async () => (await import('./cli/lake.ts')).lakeCommand,
  load: async () => (await import('./cli/load.ts')).loadCommand,
  segment: async () => (await import('./cli/segment.ts')).segmentCommand,
  schedule: async () => (await import('./cli/schedule.ts')).scheduleCommand,
  webhook: async () => (await import('./cli/webhook.ts')).webhookCommand,
  refusals: async () => (await import('./cli/refusals.ts')).refusalsCommand,
  tail: async () => (await import('./cli/tail.ts')).tailCommand,
  failed: async () => (await import('./cli/failed.ts')).failedCommand,
  event: async () => (await import('./cli/event.ts')).eventCommand,
  erase: async () => (await import('./cli/erase.ts')).eraseCommand,
  backup: async () => (await import('./cli/backup.ts')).backupCommand,
  restore: async () => (await import('./cli/restore.ts')).restoreCommand,
  verify: async () => (await import('./cli/verify.ts')).verifyCommand,
  key: async () => (await import('./cli/key.ts')).keyCommand,
  demo: async () => (await import('./cli/demo-command.ts')).demoCommand,
  setup: async () => (await import('./cli/setup.ts')).setupCommand,
  role: async () => (await import('./cli/role.ts')).roleCommand,
};

/**
 * A reader that has seen enough (`| head`) is no error, and aborts the signal; an answer that cannot be written is one.
 */
function watchOutput(): AbortSignal {
  const unread = new AbortController();
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') return unread.abort();
    process.stderr.write(`tributary: the answer cannot be written to standard output: ${describeError(error)}\n`);
    process.exit(1);
  });
  process.stderr.on('error', () => undefined);
  return unread.signal;
}

/** First signal: drain. Second: force. */
function listenForSignals(): { stop: AbortSignal; force: AbortSignal } {
  const stop = new AbortController();
  const force = new AbortController();
  const onSignal = (): void => {
    if (!stop.signal.aborted) return stop.abort();
    force.abort();
    process.exit(1);
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  return { stop: stop.signal, force: force.signal };
}

/** Ctrl-C reaches every process of the terminal; a role's process stops when its supervisor says so. */
function ignoreInterrupts(): { stop: AbortSignal; force: AbortSignal } {
  process.on('SIGINT', () => undefined);
  return { stop: new AbortController().signal, force: new AbortController().signal };
}

/** Loads a command by its name. Error: `usage` when there is none. */
async function findCommand(name: string): Promise<Command> {
  const load = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (load === undefined)
    throw new AppError('usage', `there is no command '${name}'`, { hint: "'tributary help' lists them." });
  return load();
}

/** `tributary help [COMMAND]`, and `--help` behind any command. */
async function help(name: string | undefined): Promise<string> {
  if (name !== undefined) return renderHelp(await findCommand(name));
  return renderCommands(await Promise.all(Object.values(commands).map((load) => load())));
}

/** Asks on the terminal; anything but yes is no. */
async function confirm(question: string): Promise<boolean> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const given = new AbortController();
  // Ctrl-C and the end of the input are no answer.
  terminal.on('close', () => given.abort()).on('SIGINT', () => given.abort());
  try {
    return /^y(es)?$/i.test((await terminal.question(`${question} (yes/no) `, { signal: given.signal })).trim());
  } catch {
    return false;
  } finally {
    terminal.close();
  }
}

async function main([name, ...args]: readonly string[], unread: AbortSignal): Promise<number> {
  const isHelp = name === undefined || ['help', '--help', '-h'].includes(name);
  if (isHelp || asksForHelp(args)) {
    process.stdout.write(await help(isHelp ? args.find((word) => !word.startsWith('-')) : name));
    return name === undefined ? 1 : 0;
  }
  const signals = name === 'role' ? ignoreInterrupts() : listenForSignals();
  const command = await findCommand(name);
  const context: CommandContext = {
    environment: process.env,
    entry: fileURLToPath(import.meta.url),
    answer: (value) => void process.stdout.write(`${JSON.stringify(value)}\n`),
    print: (line) => void process.stdout.write(`${line}\n`),
    note: (line) => void process.stderr.write(`${line}\n`),
    input: () => process.stdin,
    isTerminal: process.stderr.isTTY,
    ...(process.stdin.isTTY && process.stderr.isTTY ? { confirm } : {}),
    ...signals,
    unread,
  };
  return (await command.run(args, context)) ?? 0;
}

useCodeCache();
// What the service and its engines write is for their owner alone.
process.umask(0o077);
main(process.argv.slice(2), watchOutput())
  .then((code) => {
    process.exitCode = code;
  })
  .catch((error: unknown) => {
    process.stderr.write(`tributary: ${describeError(error)}\n`);
    process.exitCode = 1;
  })
  // What was to do is done; a role's channel to its supervisor, or a connection that a stalled broker never answered,
  // would keep the process. What was written to a pipe is passed on first.
  .finally(() => process.stdout.write('', () => process.exit()));
