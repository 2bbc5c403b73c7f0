import { createInterface as createPrompt } from 'node:readline';
import { createInterface } from 'node:readline/promises';
import process from 'node:process';
import { describeError } from '../runtime/errors.ts';
import type { CommandContext } from './command.ts';

/** Returns a signal that a closed pipe (`| head`) aborts. Exits if standard output cannot be written. */
export function watchOutput(): AbortSignal {
  const unread = new AbortController();
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') return unread.abort();
    process.stderr.write(`tributary: the answer cannot be written to standard output: ${describeError(error)}\n`);
    process.exit(1);
  });
  process.stderr.on('error', () => undefined);
  return unread.signal;
}

/** Writes to standard output no faster than it is read. */
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

/** Asks for yes or no on the terminal. */
async function confirm(question: string): Promise<boolean> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const given = new AbortController();
  // Ctrl-C and the end of the input mean no.
  terminal.on('close', () => given.abort()).on('SIGINT', () => given.abort());
  try {
    return /^y(es)?$/i.test((await terminal.question(`${question} (yes/no) `, { signal: given.signal })).trim());
  } catch {
    return false;
  } finally {
    terminal.close();
  }
}

/** Width of a terminal that does not report one, as of a container. */
const usualColumns = 80;

/** Writes lines to standard error; on a terminal `show` replaces its last line. */
function createNotes(): Pick<CommandContext, 'note' | 'show'> {
  const { stderr } = process;
  if (!stderr.isTTY) return { note: (line) => void stderr.write(`${line}\n`) };
  const clear = '\r\u001b[2K';
  return {
    note: (line) => void stderr.write(`${clear}${line}\n`),
    show: (line) => void stderr.write(`${clear}${line.slice(0, stderr.columns - 1)}`),
  };
}

/** Creates the parts of a command's context that are the terminal or the pipes in its place. */
export function createTerminal(): Omit<CommandContext, 'environment' | 'entry' | 'stop' | 'force' | 'unread'> {
  const { stdin, stdout, stderr } = process;
  return {
    answer: (value) => void stdout.write(`${JSON.stringify(value)}\n`),
    print: (line) => void stdout.write(`${line}\n`),
    ...createNotes(),
    input: () => stdin,
    isTerminal: stderr.isTTY,
    write,
    ...(stdin.isTTY && stdout.isTTY ? { openPrompt: () => createPrompt({ input: stdin, output: stdout }) } : {}),
    ...(stdout.isTTY ? { screen: { columns: stdout.columns || usualColumns } } : {}),
    ...(stdin.isTTY && stderr.isTTY ? { confirm } : {}),
  };
}
