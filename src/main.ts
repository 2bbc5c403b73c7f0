#!/usr/bin/env node
import Module from 'node:module';
import path from 'node:path';
import { createInterface as createPrompt } from 'node:readline';
import { createInterface } from 'node:readline/promises';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import type { Command, CommandContext } from './cli/command.ts';
import { describeError } from './runtime/errors.ts';

/**
 * Every verb, in the order of the help. Each is loaded when it is called: a small command starts fast and stays small.
 */
const commands: Readonly<Record<string, () => Promise<Command>>> = {
  start: async () => (await import('./cli/start.ts')).startCommand,
  stop: async () => (await import('./cli/stop.ts')).stopCommand,
  app: async () => (await import('./cli/app.ts')).appCommand,
  user: async () => (await import('./cli/user.ts')).userCommand,
  status: async () => (await import('./cli/status.ts')).statusCommand,
  query: async () => (await import('./cli/query.ts')).queryCommand,
  catalogue: async () => (await import('./cli/catalogue.ts')).catalogueCommand,
  lake: async () => (await import('./cli/lake.ts')).lakeCommand,
  init: async () => (await import('./cli/init.ts')).initCommand,
  import: async () => (await import('./cli/import.ts')).importCommand,
  export: async () => (await import('./cli/export.ts')).exportCommand,
  profile: async () => (await import('./cli/profile.ts')).profileCommand,
  load: async () => (await import('./cli/load.ts')).loadCommand,
  segment: async () => (await import('./cli/segment.ts')).segmentCommand,
  schedule: async () => (await import('./cli/schedule.ts')).scheduleCommand,
  webhook: async () => (await import('./cli/webhook.ts')).webhookCommand,
  refusals: async () => (await import('./cli/catalogue.ts')).refusalsCommand,
  tail: async () => (await import('./cli/tail.ts')).tailCommand,
  failed: async () => (await import('./cli/failed.ts')).failedCommand,
  event: async () => (await import('./cli/event.ts')).eventCommand,
  erase: async () => (await import('./cli/erase.ts')).eraseCommand,
  backup: async () => (await import('./cli/backup.ts')).backupCommand,
  restore: async () => (await import('./cli/restore.ts')).restoreCommand,
  verify: async () => (await import('./cli/verify.ts')).verifyCommand,
  key: async () => (await import('./cli/key.ts')).keyCommand,
  demo: async () => (await import('./cli/setup.ts')).demoCommand,
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

/** The command that is called alone; every one, where there is none of that name or where all are to be listed. */
async function loadCommands(name: string | undefined): Promise<Command[]> {
  if (name === '-V' || name === '--version') return [];
  const load = name !== undefined && Object.hasOwn(commands, name) ? commands[name] : undefined;
  return await Promise.all((load === undefined ? Object.values(commands) : [load]).map((each) => each()));
}

/** `tributary help [COMMAND...]` and `tributary --help COMMAND...` are those of the command. */
function toHelp(words: readonly string[]): readonly string[] {
  const [first = '', ...rest] = words;
  return ['help', '--help', '-h'].includes(first) ? [...rest.filter((word) => !word.startsWith('-')), '--help'] : words;
}

/** Writes on standard output no faster than it is read. */
async function write(text: string | Uint8Array): Promise<void> {
  if (process.stdout.write(text) || process.stdout.destroyed) return;
  await new Promise<void>((resolve) => {
    const settle = (): void => {
      process.stdout.off('drain', settle).off('close', settle).off('error', settle);
      resolve();
    };
    process.stdout.on('drain', settle).on('close', settle).on('error', settle);
  });
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

/** The width of a terminal that does not say its own, as one that a container or a recorder opens. */
const usualColumns = 80;

/** Lines for a person on standard error; on a terminal also one that is replaced by the next. */
function createNotes(): Pick<CommandContext, 'note' | 'show'> {
  const { stderr } = process;
  if (!stderr.isTTY) return { note: (line) => void stderr.write(`${line}\n`) };
  const clear = '\r\u001b[2K';
  return {
    note: (line) => void stderr.write(`${clear}${line}\n`),
    show: (line) => void stderr.write(`${clear}${line.slice(0, stderr.columns - 1)}`),
  };
}

async function main(given: readonly string[], unread: AbortSignal): Promise<number> {
  const words = toHelp(given);
  const [name] = words;
  const signals = name === 'role' ? ignoreInterrupts() : listenForSignals();
  const context: CommandContext = {
    environment: process.env,
    entry: fileURLToPath(import.meta.url),
    answer: (value) => void process.stdout.write(`${JSON.stringify(value)}\n`),
    print: (line) => void process.stdout.write(`${line}\n`),
    ...createNotes(),
    input: () => process.stdin,
    isTerminal: process.stderr.isTTY,
    write,
    ...(process.stdin.isTTY && process.stdout.isTTY
      ? { openPrompt: () => createPrompt({ input: process.stdin, output: process.stdout }) }
      : {}),
    ...(process.stdout.isTTY ? { screen: { columns: process.stdout.columns || usualColumns } } : {}),
    ...(process.stdin.isTTY && process.stderr.isTTY ? { confirm } : {}),
    ...signals,
    unread,
  };
  // Loaded as the commands are, with V8's compiled code.
  const { runProgram } = await import('./cli/program.ts');
  const { useDatasetsOf } = await import('./cli/command.ts');
  useDatasetsOf(words, process.env);
  return await runProgram(await loadCommands(name), words, context);
}

// V8's compiled code of what is loaded from here on, kept beside the program where Node can (22.1 and newer): a start
// takes a quarter less processor time.
const { enableCompileCache } = Module as { enableCompileCache?: (folder: string) => unknown };
enableCompileCache?.(path.join(import.meta.dirname, 'compile-cache'));
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
