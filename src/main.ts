#!/usr/bin/env node
import Module from 'node:module';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import type { Command, CommandContext } from './cli/command.ts';
import { describeError } from './runtime/errors.ts';

/** All commands, in the order of the help. Each is loaded on demand. */
const commands: Readonly<Record<string, () => Promise<Command>>> = {
  start: async () => (await import('./cli/start.ts')).startCommand,
  stop: async () => (await import('./cli/stop.ts')).stopCommand,
  app: async () => (await import('./cli/app.ts')).appCommand,
  user: async () => (await import('./cli/user.ts')).userCommand,
  status: async () => (await import('./cli/status.ts')).statusCommand,
  log: async () => (await import('./cli/log.ts')).logCommand,
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
  destination: async () => (await import('./cli/destination.ts')).destinationCommand,
  webhook: async () => (await import('./cli/webhook.ts')).webhookCommand,
  refusals: async () => (await import('./cli/catalogue.ts')).refusalsCommand,
  audit: async () => (await import('./cli/audit.ts')).auditCommand,
  tail: async () => (await import('./cli/tail.ts')).tailCommand,
  failed: async () => (await import('./cli/failed.ts')).failedCommand,
  event: async () => (await import('./cli/event.ts')).eventCommand,
  erase: async () => (await import('./cli/erase.ts')).eraseCommand,
  person: async () => (await import('./cli/person.ts')).personCommand,
  backup: async () => (await import('./cli/backup.ts')).backupCommand,
  restore: async () => (await import('./cli/restore.ts')).restoreCommand,
  verify: async () => (await import('./cli/verify.ts')).verifyCommand,
  key: async () => (await import('./cli/key.ts')).keyCommand,
  demo: async () => (await import('./cli/setup.ts')).demoCommand,
  size: async () => (await import('./cli/size.ts')).sizeCommand,
  setup: async () => (await import('./cli/setup.ts')).setupCommand,
  role: async () => (await import('./cli/role.ts')).roleCommand,
};

/** Returns a signal that a closed pipe (`| head`) aborts. Exits if standard output cannot be written. */
function watchOutput(): AbortSignal {
  const unread = new AbortController();
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') return unread.abort();
    process.stderr.write(`tributary: cannot write to standard output: ${describeError(error)}\n`);
    process.exit(1);
  });
  process.stderr.on('error', () => undefined);
  return unread.signal;
}

/** Returns signals for draining (first SIGTERM or SIGINT) and for a forced stop (second). */
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

/** Ignores Ctrl-C, which reaches all processes of a terminal: the supervisor stops a role's process. */
function ignoreInterrupts(): { stop: AbortSignal; force: AbortSignal } {
  process.on('SIGINT', () => undefined);
  return { stop: new AbortController().signal, force: new AbortController().signal };
}

/** Loads the named command, or all of them for the help and an unknown name. */
async function loadCommands(name: string | undefined): Promise<Command[]> {
  if (name === '-V' || name === '--version') return [];
  const load = name !== undefined && Object.hasOwn(commands, name) ? commands[name] : undefined;
  return await Promise.all((load === undefined ? Object.values(commands) : [load]).map((each) => each()));
}

/** Turns `tributary help [COMMAND...]` and `tributary --help COMMAND...` into the command's own help. */
function toHelp(words: readonly string[]): readonly string[] {
  const [first = '', ...rest] = words;
  return ['help', '--help', '-h'].includes(first) ? [...rest.filter((word) => !word.startsWith('-')), '--help'] : words;
}

async function main(args: readonly string[], unread: AbortSignal): Promise<number> {
  const words = toHelp(args);
  const [name] = words;
  const signals = name === 'role' ? ignoreInterrupts() : listenForSignals();
  // Loaded on demand, so that V8's compiled code is used.
  const { createTerminal } = await import('./cli/terminal.ts');
  const context: CommandContext = {
    environment: process.env,
    entry: fileURLToPath(import.meta.url),
    ...createTerminal(process),
    ...signals,
    unread,
  };
  const { runProgram } = await import('./cli/program.ts');
  const { useDatasetsOf } = await import('./cli/command.ts');
  useDatasetsOf(words, process.env);
  return await runProgram(await loadCommands(name), words, context);
}

// Keeps V8's compiled code next to the program (Node 22.1 and newer): a start takes a quarter less CPU.
const { enableCompileCache } = Module as { enableCompileCache?: (folder: string) => unknown };
enableCompileCache?.(path.join(import.meta.dirname, 'compile-cache'));
// Files of the service and its engines are readable by their owner only.
process.umask(0o077);
main(process.argv.slice(2), watchOutput())
  .then((code) => {
    process.exitCode = code;
  })
  .catch((error: unknown) => {
    process.stderr.write(`tributary: ${describeError(error)}\n`);
    process.exitCode = 1;
  })
  // An open channel to the supervisor or a stalled connection would keep the process alive. Pipes are flushed first.
  .finally(() => process.stdout.write('', () => process.exit()));
