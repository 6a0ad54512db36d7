"""The parts of tiny_preference.py and tiny_vlm.py, which make the models of the tests.

The life of a tiny model: a tokenizer is made of some sentences (bpe.py, preference_tokenizers.py,
vlm_tokenizers.py); the two programs draw random weights and export them as the exporters do;
then PyTorch is asked in eager mode (preference_goldens.py, vlm_answers.py), and its answers lie in
golden.json beside the model. vlm_exotic.py turns one decoder into forms of public exports.

With the pinned versions every byte is the same on every run.
"""
