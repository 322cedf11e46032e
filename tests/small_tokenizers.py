"""Tokenizers of each family, built on the spot."""

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast

SPACE = "\u2581"  # SentencePiece's mark for a space
FALLBACK = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_level(bos: bool = False, trim_offsets: bool = False) -> PreTrainedTokenizerFast:
    """GPT-2's kind: 256 bytes and the merges "he", "ll", " t"; `bos` puts <s> in front as Llama 3 does."""
    merges = [("h", "e"), ("l", "l"), ("Ġ", "t")]
    pieces = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    backend = Tokenizer(models.BPE({piece: at for at, piece in enumerate(pieces)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    steps = [processors.ByteLevel(trim_offsets=trim_offsets)]
    if bos:
        steps.append(processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)]))
    backend.post_processor = processors.Sequence(steps)
    return _finish(backend)


def llama2(bos: bool = True) -> PreTrainedTokenizerFast:
    """Llama 2's kind: a dummy space in front, byte fallback, and one leading space stripped when decoding."""
    merges = [("h", "e"), ("l", "l"), (SPACE, "t")]
    letters = [SPACE, *"abcdefghijklmnopqrstuvwxyzABCDEF.,<>&;/|_"]
    pieces = ["<s>", "</s>", "<unk>", *FALLBACK, *letters, *map("".join, merges)]
    vocabulary = {piece: at for at, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    if bos:
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return _finish(backend)


def unigram() -> PreTrainedTokenizerFast:
    """SentencePiece Unigram with Metaspace on both sides and byte fallback."""
    pieces = [("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((piece, -9.0) for piece in FALLBACK)]
    pieces += [(piece, -2.0) for piece in (SPACE, f"{SPACE}the", "he", "ll", "o", "\u6771", *"abcdefgh")]
    backend = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return _finish(backend)


def wordpiece() -> PreTrainedTokenizerFast:
    """BERT's kind: "##" continues a word, [CLS] and [SEP] around the text."""
    pieces = ["[UNK]", "[CLS]", "[SEP]", "hello", "cache", "##s", "##d", "a", ".", "'"]
    backend = Tokenizer(models.WordPiece({piece: at for at, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(cleanup=False)
    around = [("[CLS]", 1), ("[SEP]", 2)]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=around)
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")


def gpt1() -> PreTrainedTokenizerFast:
    """An end-of-word mark instead of a space mark."""
    vocabulary = {"a": 0, "b": 1, "a</w>": 2, "b</w>": 3}
    backend = Tokenizer(models.BPE(vocabulary, [], end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.BPEDecoder()
    return PreTrainedTokenizerFast(tokenizer_object=backend)


class Words(PreTrainedTokenizer):
    """A tokenizer in plain Python, without a backend to ask: one id a word."""

    def __init__(self) -> None:
        self._words = ["<unk>", "hello", "cache", "a"]
        super().__init__(unk_token="<unk>")

    @property
    def vocab_size(self) -> int:
        return len(self._words)

    def get_vocab(self) -> dict[str, int]:
        return {word: at for at, word in enumerate(self._words)}

    def _tokenize(self, text: str, **kwargs: object) -> list[str]:
        return text.split()

    def _convert_token_to_id(self, token: str) -> int:
        return self.get_vocab().get(token, 0)

    def _convert_id_to_token(self, index: int) -> str | None:
        return self._words[index] if index < len(self._words) else None


def _finish(backend: Tokenizer) -> PreTrainedTokenizerFast:
    backend.add_special_tokens([AddedToken("<|turn|>", special=True), AddedToken("<|end|>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
