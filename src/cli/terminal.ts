import { createInterface as createPrompt } from 'node:readline';
import { createInterface } from 'node:readline/promises';
import type { CommandContext } from './command.ts';

type Streams = Pick<NodeJS.Process, 'stdin' | 'stdout' | 'stderr'>;

/** Writes to standard output, and waits until it is read. */
async function write(stdout: NodeJS.WriteStream, text: string | Uint8Array): Promise<void> {
  if (stdout.write(text) || stdout.destroyed) return;
  await new Promise<void>((resolve) => {
    const settle = (): void => {
      stdout.off('drain', settle).off('close', settle).off('error', settle);
      resolve();
    };
    stdout.on('drain', settle).on('close', settle).on('error', settle);
  });
}

/** Asks for yes or no on the terminal. */
async function confirm({ stdin, stderr }: Streams, question: string): Promise<boolean> {
  const terminal = createInterface({ input: stdin, output: stderr });
  const interruption = new AbortController();
  // Ctrl-C and the end of the input mean no.
  terminal.on('close', () => interruption.abort()).on('SIGINT', () => interruption.abort());
  try {
    return /^y(es)?$/i.test((await terminal.question(`${question} (yes/no) `, { signal: interruption.signal })).trim());
  } catch {
    return false;
  } finally {
    terminal.close();
  }
}

/** Width of a terminal that does not report one, such as in a container. */
const usualColumns = 80;

/** Writes lines to standard error; on a terminal `printProgress` replaces its last line. */
function createNotes(stderr: NodeJS.WriteStream): Pick<CommandContext, 'printMessage' | 'printProgress'> {
  if (!stderr.isTTY) return { printMessage: (line) => void stderr.write(`${line}\n`) };
  const clear = '\r\u001b[2K';
  return {
    printMessage: (line) => void stderr.write(`${clear}${line}\n`),
    printProgress: (line) => void stderr.write(`${clear}${line.slice(0, stderr.columns - 1)}`),
  };
}

/** Creates the parts of a command's context that use the terminal or pipes. */
export function createTerminal(
  streams: Streams,
): Omit<CommandContext, 'environment' | 'entry' | 'stop' | 'force' | 'unread'> {
  const { stdin, stdout, stderr } = streams;
  return {
    printResult: (value) => void stdout.write(`${JSON.stringify(value)}\n`),
    print: (line) => void stdout.write(`${line}\n`),
    ...createNotes(stderr),
    input: () => stdin,
    isTerminal: stderr.isTTY,
    write: (text) => write(stdout, text),
    ...(stdin.isTTY && stdout.isTTY ? { openPrompt: () => createPrompt({ input: stdin, output: stdout }) } : {}),
    ...(stdout.isTTY ? { screen: { columns: stdout.columns || usualColumns } } : {}),
    ...(stdin.isTTY && stderr.isTTY ? { confirm: (question: string) => confirm(streams, question) } : {}),
  };
}
