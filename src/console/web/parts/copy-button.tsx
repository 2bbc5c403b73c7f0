import { useState } from 'preact/hooks';

/** Copies a text. Where the browser gives no access to its clipboard, the text is to be marked by hand. */
export function CopyButton({
  text,
  label = 'Copy',
  kind = 'small',
}: {
  readonly text: string;
  readonly label?: string;
  readonly kind?: 'small' | 'primary';
}) {
  const [said, setSaid] = useState('');

  async function copy(button: HTMLElement): Promise<void> {
    const isDone = await copyText(text, button);
    setSaid(isDone ? 'Copied' : 'Not allowed by the browser');
    setTimeout(() => setSaid(''), 2000);
  }

  return (
    <button class={`button ${kind}`} type="button" onClick={(event) => void copy(event.currentTarget)}>
      <span aria-live="polite">{said === '' ? label : said}</span>
    </button>
  );
}

/** Addresses without TLS have no `navigator.clipboard`, but for the machine's own. */
async function copyText(text: string, button: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'hidden';
    // Beside the button: outside of an open dialog nothing can be marked.
    button.after(area);
    area.select();
    // The one way that is left where the page is not of a secure address.
    const isDone = document.execCommand('copy');
    area.remove();
    button.focus();
    return isDone;
  }
}
