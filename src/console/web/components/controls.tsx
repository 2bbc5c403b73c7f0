/** Controls. Their labels are their accessible names. */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';

type Attributes<Tag extends keyof JSX.IntrinsicElements> = Omit<JSX.IntrinsicElements[Tag], 'class' | 'label' | 'icon'>;

/** A button; `kind` has classes of the style sheet, such as `primary` or `plain small`. */
export function Button({ kind = '', ...attributes }: Attributes<'button'> & { readonly kind?: string }) {
  return <button class={`button ${kind}`} type="button" {...attributes} />;
}

interface FieldProps {
  readonly label: ComponentChildren;
  /** `hidden`: the label is for screen readers only; `inline`: it is next to the control. */
  readonly kind?: string | undefined;
}

export function Field({ label, kind = '', children }: FieldProps & { readonly children?: ComponentChildren }) {
  const isHidden = kind.includes('hidden');
  return (
    <label class={kind.includes('inline') ? 'field inline' : 'field'}>
      <span class={isHidden ? 'hidden' : undefined}>{label}</span>
      {children}
    </label>
  );
}

export function Input({ label, kind, ...attributes }: FieldProps & Attributes<'input'>) {
  return (
    <Field label={label} kind={kind}>
      <input {...attributes} />
    </Field>
  );
}

/** A field for a positive whole number of at most 15 digits. */
export function NumberInput(props: FieldProps & Attributes<'input'>) {
  return <Input inputMode="numeric" pattern="[1-9][0-9]{0,14}" autocomplete="off" {...props} />;
}

type Choice = string | readonly [value: string, title: string];

/** A list of choices, after `children`. */
export function Select({
  label,
  kind,
  choices = [],
  children,
  ...attributes
}: FieldProps & Attributes<'select'> & { readonly choices?: readonly Choice[] }) {
  return (
    <Field label={label} kind={kind}>
      <select {...attributes}>
        {children}
        {choices.map((choice) => {
          const [value, title] = typeof choice === 'string' ? [choice, choice] : choice;
          return (
            <option key={value} value={value}>
              {title}
            </option>
          );
        })}
      </select>
    </Field>
  );
}

/** A checkbox, or a radio button with `type="radio"`. */
export function Check({ label, kind = '', ...attributes }: FieldProps & Attributes<'input'>) {
  return (
    <label class={`check ${kind}`}>
      <input type="checkbox" {...attributes} />
      <span>{label}</span>
    </label>
  );
}

/** A group of radio buttons in a row. */
export function Segments<Value extends string | number>({
  legend,
  isLegendShown = false,
  name,
  choices,
  value,
  onChoose,
}: {
  readonly legend: string;
  readonly isLegendShown?: boolean;
  readonly name: string;
  readonly choices: readonly (readonly [value: Value, title: ComponentChildren])[];
  readonly value: Value | undefined;
  readonly onChoose: (value: Value) => void;
}) {
  return (
    <fieldset class="segments">
      <legend class={isLegendShown ? undefined : 'hidden'}>{legend}</legend>
      {choices.map(([each, title]) => (
        <label key={each}>
          <input type="radio" name={name} checked={each === value} onChange={() => onChoose(each)} />
          <span>{title}</span>
        </label>
      ))}
    </fieldset>
  );
}

/** Delay after the last key before a search starts, ms. */
const settleMs = 200;

/** A search field; `onSearch` is called when typing has paused. */
export function SearchField({
  label,
  onSearch,
}: {
  readonly label: string;
  readonly onSearch: (text: string) => void;
}) {
  const [text, setText] = useState('');
  useEffect(() => {
    const timer = setTimeout(() => onSearch(text.trim()), settleMs);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <label class="find-field">
      <span class="hidden">{label}</span>
      <input type="search" placeholder={label} value={text} onInput={(event) => setText(event.currentTarget.value)} />
    </label>
  );
}

interface CopyProps {
  readonly text: string;
  readonly label?: string;
  readonly kind?: 'small' | 'primary';
}

/** Copies a text. Without access to the clipboard the user can copy it by hand. */
export function CopyButton({ text, label = 'Copy', kind = 'small' }: CopyProps) {
  const [announcement, setAnnouncement] = useState('');

  async function copy(button: HTMLElement): Promise<void> {
    const isDone = await copyText(text, button);
    setAnnouncement(isDone ? 'Copied' : 'Not allowed by the browser');
    setTimeout(() => setAnnouncement(''), 2000);
  }

  return (
    <Button kind={kind} onClick={(event) => void copy(event.currentTarget)}>
      <span aria-live="polite">{announcement === '' ? label : announcement}</span>
    </Button>
  );
}

/** Without TLS there is no `navigator.clipboard`, except on localhost. */
async function copyText(text: string, button: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'hidden';
    // Next to the button: outside of an open dialog nothing can be selected.
    button.after(area);
    area.select();
    // Deprecated, but the only way on an insecure address.
    const isDone = document.execCommand('copy');
    area.remove();
    button.focus();
    return isDone;
  }
}
